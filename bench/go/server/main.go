// server SOCKET [ADDRESS]: a DRA driver that is ready at once, one device per claim. Claims whose
// name begins with "check" make it say what arrived. On ADDRESS it takes and drops OTLP over HTTP.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	dra "k8s.io/kubelet/pkg/apis/dra/v1"
)

const devices = 8

type driver struct {
	dra.UnimplementedDRAPluginServer
	health.UnimplementedDRAResourceHealthServer
}

func (driver) NodePrepareResources(ctx context.Context, in *dra.NodePrepareResourcesRequest) (*dra.NodePrepareResourcesResponse, error) {
	if len(in.Claims) == 1 && strings.HasPrefix(in.Claims[0].Name, "check") {
		if err := check(ctx, in.Claims[0].Name); err != nil {
			return nil, err
		}
	}
	out := map[string]*dra.NodePrepareResourceResponse{}
	share := "5b0c8a52-64d4-4f0e-9a57-0d6f6f1c2a11"
	for _, claim := range in.Claims {
		// About 290 bytes per claim, as a GPU driver with CDI answers.
		out[claim.Uid] = &dra.NodePrepareResourceResponse{Devices: []*dra.Device{{
			RequestNames: []string{"gpu"},
			PoolName:     "bench-node",
			DeviceName:   "gpu-0",
			CdiDeviceIds: []string{
				"k8s.gpu.example.com/device=gpu-0",
				"k8s.gpu.example.com/claim=" + claim.Uid + "-gpu-0" + strings.Repeat("x", 66),
			},
			ShareId: &share,
		}}}
	}
	return &dra.NodePrepareResourcesResponse{Claims: out}, nil
}

// check answers with headers and trailers that the load client compares.
func check(ctx context.Context, name string) error {
	got, _ := metadata.FromIncomingContext(ctx)
	deadline, has := ctx.Deadline()
	left := int64(-1)
	if has {
		left = time.Until(deadline).Milliseconds()
	}
	grpc.SendHeader(ctx, metadata.Pairs("bench-header", "h", "bench-header-bin", "\x00\xff\x01"))
	grpc.SetTrailer(ctx, metadata.Pairs(
		"bench-text", strings.Join(got["bench-text"], ","),
		"bench-bytes-bin", strings.Join(got["bench-bytes-bin"], ","),
		"bench-left-ms", fmt.Sprint(left),
	))
	switch name {
	case "check-error":
		full, err := status.New(codes.FailedPrecondition, "nö %, two\nlines").WithDetails(wrapperspb.String("detail"))
		if err != nil {
			return err
		}
		return full.Err()
	case "check-deadline":
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (driver) NodeUnprepareResources(_ context.Context, in *dra.NodeUnprepareResourcesRequest) (*dra.NodeUnprepareResourcesResponse, error) {
	out := map[string]*dra.NodeUnprepareResourceResponse{}
	for _, claim := range in.Claims {
		out[claim.Uid] = &dra.NodeUnprepareResourceResponse{}
	}
	return &dra.NodeUnprepareResourcesResponse{Claims: out}, nil
}

func (driver) NodeWatchResources(_ *health.NodeWatchResourcesRequest, out health.DRAResourceHealth_NodeWatchResourcesServer) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		message := &health.NodeWatchResourcesResponse{}
		for i := range devices {
			message.Devices = append(message.Devices, &health.DeviceHealth{
				Device:          &health.DeviceIdentifier{PoolName: "bench-node", DeviceName: fmt.Sprintf("gpu-%d", i)},
				Health:          health.HealthStatus_HEALTHY,
				LastUpdatedTime: time.Now().Unix(),
			})
		}
		if err := out.Send(message); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-out.Context().Done():
			return nil
		}
	}
}

func main() {
	if len(os.Args) > 2 {
		go func() {
			log.Fatal(http.ListenAndServe(os.Args[2], http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "application/x-protobuf")
			})))
		}()
	}
	os.Remove(os.Args[1])
	listener, err := net.Listen("unix", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	dra.RegisterDRAPluginServer(server, driver{})
	health.RegisterDRAResourceHealthServer(server, driver{})
	log.Fatal(server.Serve(listener))
}
