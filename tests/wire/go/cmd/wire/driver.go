package main

import (
	"context"
	"log"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1"
	dra "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// driver does what the name of a call's first claim says; tests/wire/harness.py has the list.
type driver struct {
	dra.UnimplementedDRAPluginServer
	health.UnimplementedDRAResourceHealthServer
	registration.UnimplementedRegistrationServer
	info   *registration.PluginInfo
	server *grpc.Server
}

func serveDriver(name, registrationSocket, endpoint string, withHealth bool) {
	d := &driver{info: &registration.PluginInfo{
		Type: registration.DRAPlugin, Name: name, Endpoint: endpoint, SupportedVersions: []string{dra.DRAPluginService},
	}}
	// As the helper: interceptors and nothing else, so 4 MiB is the largest request.
	d.server = grpc.NewServer(grpc.UnaryInterceptor(note))
	dra.RegisterDRAPluginServer(d.server, d)
	d.server.RegisterService(&later, d)
	if withHealth {
		d.info.SupportedVersions = append(d.info.SupportedVersions, health.DRAResourceHealthService)
		health.RegisterDRAResourceHealthServer(d.server, d)
	}
	second := grpc.NewServer()
	registration.RegisterRegistrationServer(second, d)
	go func() { log.Fatal(d.server.Serve(listen(endpoint))) }()
	go func() { log.Fatal(second.Serve(listen(registrationSocket))) }()
	say(object{"event": "ready"})
	for input := lines(); input.Scan(); {
		if input.Text() == "goaway" {
			go func() {
				d.server.GracefulStop()
				say(object{"event": "stopped"})
			}()
		}
	}
}

func listen(path string) net.Listener {
	os.Remove(path)
	listener, err := net.Listen("unix", path)
	if err != nil {
		log.Fatal(err)
	}
	return listener
}

// note tells what arrived.
func note(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	body, _ := proto.Marshal(req.(proto.Message))
	left := int64(-1)
	if deadline, ok := ctx.Deadline(); ok {
		left = time.Until(deadline).Milliseconds()
	}
	say(object{"event": "call", "method": info.FullMethod, "body": body, "metadata": pairs(md), "leftMs": left})
	return next(ctx, req)
}

func (d *driver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return d.info, nil
}

func (d *driver) NotifyRegistrationStatus(_ context.Context, in *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	say(object{"event": "notified", "registered": in.PluginRegistered, "error": in.Error})
	if !in.PluginRegistered {
		// As the helper does, which some drivers base their readiness on.
		return nil, status.Error(codes.Unknown, "failed registration process: "+in.Error)
	}
	return &registration.RegistrationStatusResponse{}, nil
}

func (d *driver) NodePrepareResources(ctx context.Context, in *dra.NodePrepareResourcesRequest) (*dra.NodePrepareResourcesResponse, error) {
	word, argument, _ := strings.Cut(in.Claims[0].Name, "-")
	number, _ := strconv.Atoi(argument)
	cdi := "example.com/device=gpu-0"
	switch word {
	case "meta":
		md, _ := metadata.FromIncomingContext(ctx)
		back := metadata.Pairs("x-text", strings.Join(md["x-text"], ","), "x-bytes-bin", strings.Join(md["x-bytes-bin"], ""))
		grpc.SendHeader(ctx, back)
		grpc.SetTrailer(ctx, back)
	case "fail":
		return nil, failure(number)
	case "slow":
		<-ctx.Done()
		say(object{"event": "cancelled", "claim": in.Claims[0].Name})
		return nil, ctx.Err()
	case "wait":
		time.Sleep(time.Duration(number) * time.Millisecond)
	case "large":
		cdi = strings.Repeat("x", number)
	}
	out := &dra.NodePrepareResourcesResponse{Claims: map[string]*dra.NodePrepareResourceResponse{}}
	for _, claim := range in.Claims {
		out.Claims[claim.Uid] = &dra.NodePrepareResourceResponse{Devices: []*dra.Device{{
			PoolName: "pool", DeviceName: "gpu-0", CdiDeviceIds: []string{cdi},
		}}}
	}
	// What a later version of the API may have: a field that nobody here knows.
	out.ProtoReflect().SetUnknown([]byte("\xfa\x01\x05later"))
	return out, nil
}

// failure has a long text with characters that need escaping, and details.
func failure(size int) error {
	text := strings.Repeat("é%\n", 3)
	text += strings.Repeat("x", max(0, size-len(text)))
	full, err := status.New(codes.FailedPrecondition, text).WithDetails(wrapperspb.String("detail"))
	if err != nil {
		return err
	}
	return full.Err()
}

func (d *driver) NodeUnprepareResources(ctx context.Context, in *dra.NodeUnprepareResourcesRequest) (*dra.NodeUnprepareResourcesResponse, error) {
	out := &dra.NodeUnprepareResourcesResponse{Claims: map[string]*dra.NodeUnprepareResourceResponse{}}
	for _, claim := range in.Claims {
		if strings.HasPrefix(claim.Name, "fail-") {
			size, _ := strconv.Atoi(claim.Name[len("fail-"):])
			return nil, failure(size)
		}
		out.Claims[claim.Uid] = &dra.NodeUnprepareResourceResponse{}
	}
	return out, nil
}

func (d *driver) NodeWatchResources(_ *health.NodeWatchResourcesRequest, out health.DRAResourceHealth_NodeWatchResourcesServer) error {
	device := &health.DeviceHealth{Device: &health.DeviceIdentifier{PoolName: "pool", DeviceName: "gpu-0"}, Health: health.HealthStatus_HEALTHY}
	for range 3 {
		if err := out.Send(&health.NodeWatchResourcesResponse{Devices: []*health.DeviceHealth{device}}); err != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	<-out.Context().Done()
	say(object{"event": "cancelled", "claim": "health"})
	return out.Context().Err()
}

// later is a service that no agent of today knows; its messages are google.protobuf.BytesValue.
var later = grpc.ServiceDesc{
	ServiceName: "example.v7.Later",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Anything",
		Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			message := &wrapperspb.BytesValue{}
			return message, decode(message)
		},
	}},
	Streams: []grpc.StreamDesc{{
		StreamName: "Chat", ServerStreams: true, ClientStreams: true,
		Handler: func(_ any, stream grpc.ServerStream) error {
			for {
				message := &wrapperspb.BytesValue{}
				if stream.RecvMsg(message) != nil {
					break
				}
				for range 2 {
					if err := stream.SendMsg(message); err != nil {
						return err
					}
				}
			}
			stream.SetTrailer(metadata.Pairs("x-after", "last"))
			return status.Error(codes.FailedPrecondition, "ends so")
		},
	}},
}
