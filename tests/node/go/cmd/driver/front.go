package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// front serves registration and DRA on one socket in the registry, which GetInfo names as endpoint too.
//
// Drivers with a server of their own may do so; the helper has a server for each of the two. These
// listen in memory here, and every call on the socket is passed on to one of them byte for byte.
type front struct {
	path              string
	registrar, plugin *bufconn.Listener
	server            *grpc.Server
}

const bufferSize = 1 << 20

func newFront(s settings) *front {
	path := filepath.Join(s.registry, s.name+"-reg.sock")
	return &front{path: path, registrar: bufconn.Listen(bufferSize), plugin: bufconn.Listen(bufferSize)}
}

// options lets the helper listen in memory and name the common socket as its endpoint.
func (f *front) options() []kubeletplugin.Option {
	give := func(listener net.Listener) func(context.Context, string) (net.Listener, error) {
		return func(context.Context, string) (net.Listener, error) { return listener, nil }
	}
	return []kubeletplugin.Option{
		kubeletplugin.RegistrarListener(give(f.registrar)),
		kubeletplugin.PluginListener(give(f.plugin)),
		kubeletplugin.PluginDataDirectoryPath(filepath.Dir(f.path)),
		kubeletplugin.PluginSocket(filepath.Base(f.path)),
	}
}

// start listens; the helper must serve already, for the kubelet comes at once.
func (f *front) start() error {
	registrar, registrarErr := dial(f.registrar)
	plugin, pluginErr := dial(f.plugin)
	if err := errors.Join(registrarErr, pluginErr); err != nil {
		return err
	}
	if err := os.Remove(f.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", f.path)
	if err != nil {
		return err
	}
	relay := func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		if strings.HasPrefix(method, "/pluginregistration.") {
			return pass(stream, registrar, method)
		}
		return pass(stream, plugin, method)
	}
	f.server = grpc.NewServer(grpc.UnknownServiceHandler(relay), grpc.ForceServerCodec(raw{}))
	go func() {
		if err := f.server.Serve(listener); err != nil {
			fmt.Fprintln(os.Stderr, "driver: common socket:", err)
		}
	}()
	return nil
}

// stop ends all calls and removes the socket.
func (f *front) stop() { f.server.Stop() }

func dial(listener *bufconn.Listener) (*grpc.ClientConn, error) {
	dialer := func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }
	return grpc.NewClient("passthrough:///helper", grpc.WithContextDialer(dialer), grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// pass is for calls with one request, unary or answered by a stream: DRA has no others.
func pass(stream grpc.ServerStream, to *grpc.ClientConn, method string) error {
	onward, err := to.NewStream(stream.Context(), &grpc.StreamDesc{ServerStreams: true}, method, grpc.ForceCodec(raw{}))
	if err != nil {
		return err
	}
	var request []byte
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	if err := onward.SendMsg(&request); err != nil && err != io.EOF {
		return err
	}
	if err := onward.CloseSend(); err != nil {
		return err
	}
	for {
		var answer []byte
		if err := onward.RecvMsg(&answer); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := stream.SendMsg(&answer); err != nil {
			return err
		}
	}
}

// raw leaves messages as they are; the name is that of the codec on both ends.
type raw struct{}

func (raw) Marshal(message any) ([]byte, error) { return *message.(*[]byte), nil }

func (raw) Unmarshal(data []byte, message any) error {
	*message.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func (raw) Name() string { return "proto" }
