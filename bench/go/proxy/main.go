// proxy LISTEN UPSTREAM: the smallest transparent gRPC proxy in Go, as a measure: all methods,
// bytes as they came, with metadata, deadline, status and trailers.
package main

import (
	"errors"
	"io"
	"log"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
)

type message struct{ data mem.BufferSlice }

// bytesCodec hands messages through unread.
type bytesCodec struct{}

var _ encoding.CodecV2 = bytesCodec{}

func (bytesCodec) Name() string                           { return "proto" }
func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) { return v.(*message).data, nil }
func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	data.Ref()
	v.(*message).data = data
	return nil
}

type proxy struct{ upstream *grpc.ClientConn }

func (p proxy) serve(_ any, down grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(down)
	ctx := down.Context()
	if got, ok := metadata.FromIncomingContext(ctx); ok {
		got = got.Copy()
		for _, reserved := range []string{":authority", "content-type", "user-agent"} {
			delete(got, reserved)
		}
		ctx = metadata.NewOutgoingContext(ctx, got)
	}
	up, err := p.upstream.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return err
	}
	go forward(down, up)
	err = backward(up, down)
	down.SetTrailer(up.Trailer())
	return err
}

func forward(down grpc.ServerStream, up grpc.ClientStream) {
	for {
		var m message
		if err := down.RecvMsg(&m); err != nil {
			if errors.Is(err, io.EOF) {
				up.CloseSend()
			}
			return
		}
		if up.SendMsg(&m) != nil {
			return
		}
	}
}

func backward(up grpc.ClientStream, down grpc.ServerStream) error {
	for first := true; ; first = false {
		var m message
		err := up.RecvMsg(&m)
		if first {
			if header, failed := up.Header(); failed == nil {
				delete(header, "content-type")
				down.SendHeader(header)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = down.SendMsg(&m)
		}
		if err != nil {
			return err
		}
	}
}

func main() {
	upstream, err := grpc.NewClient("unix:"+os.Args[2],
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(bytesCodec{})))
	if err != nil {
		log.Fatal(err)
	}
	os.Remove(os.Args[1])
	listener, err := net.Listen("unix", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(bytesCodec{}), grpc.UnknownServiceHandler(proxy{upstream}.serve))
	log.Fatal(server.Serve(listener))
}
