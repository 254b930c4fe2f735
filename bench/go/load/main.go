// load MODE SOCKET [N]: calls a DRA driver the way kubelet does (one connection, 45 s deadline)
// and prints one JSON line. Modes: first, seq, conc, large, stream, check.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	dra "k8s.io/kubelet/pkg/apis/dra/v1"
)

const (
	workers  = 64
	manyUIDs = 500
	streams  = 50
	deadline = 45 * time.Second
)

type result map[string]any

var failures atomic.Int64

// request for `claims` claims; `from` keeps the claims of parallel workers apart, as kubelet's are.
func request(from, claims int) *dra.NodePrepareResourcesRequest {
	in := &dra.NodePrepareResourcesRequest{}
	for i := range claims {
		n := from*1000 + i
		in.Claims = append(in.Claims, &dra.Claim{
			Namespace: "default", Name: fmt.Sprintf("pod-%d-gpu-x7k2p", n),
			Uid: fmt.Sprintf("8d1f0a34-3c5b-4c1d-9e21-%012d", n),
		})
	}
	return in
}

func call(client dra.DRAPluginClient, in *dra.NodePrepareResourcesRequest) time.Duration {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	began := time.Now()
	out, err := client.NodePrepareResources(ctx, in)
	took := time.Since(began)
	if err != nil || len(out.Claims) != len(in.Claims) {
		if failures.Add(1) == 1 {
			fmt.Fprintln(os.Stderr, "first failure:", err)
		}
	}
	return took
}

func sequence(client dra.DRAPluginClient, n, claims int) []time.Duration {
	in := request(0, claims)
	times := make([]time.Duration, n)
	for i := range times {
		times[i] = call(client, in)
	}
	return times
}

func parallel(client dra.DRAPluginClient, n int) ([]time.Duration, float64) {
	var left atomic.Int64
	left.Store(int64(n))
	all := make([][]time.Duration, workers)
	var group sync.WaitGroup
	began := time.Now()
	for w := range workers {
		group.Go(func() {
			in := request(w, 1)
			for left.Add(-1) >= 0 {
				all[w] = append(all[w], call(client, in))
			}
		})
	}
	group.Wait()
	return slices.Concat(all...), float64(n) / time.Since(began).Seconds()
}

func summary(times []time.Duration) result {
	slices.Sort(times)
	at := func(share float64) float64 {
		return float64(times[min(int(share*float64(len(times))), len(times)-1)].Nanoseconds()) / 1000
	}
	return result{"n": len(times), "p50": at(.5), "p90": at(.9), "p99": at(.99), "p999": at(.999), "failures": failures.Load()}
}

// watch holds the streams open for n seconds and counts messages; "ready" is printed once all flow.
func watch(conn *grpc.ClientConn, seconds int) result {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var messages atomic.Int64
	var open sync.WaitGroup
	open.Add(streams)
	for range streams {
		go func() {
			stream, err := health.NewDRAResourceHealthClient(conn).NodeWatchResources(ctx, &health.NodeWatchResourcesRequest{})
			for first := true; err == nil; first = false {
				if _, err = stream.Recv(); err == nil && first {
					open.Done()
				}
				messages.Add(1)
			}
		}()
	}
	open.Wait()
	fmt.Println("ready")
	messages.Store(0)
	time.Sleep(time.Duration(seconds) * time.Second)
	return result{"messages": messages.Load(), "expected": streams * seconds}
}

// check says what a proxy changed that it should not have.
func check(client dra.DRAPluginClient) result {
	var wrong []string
	expect := func(ok bool, what string, got any) {
		if !ok {
			wrong = append(wrong, fmt.Sprintf("%s: %q", what, fmt.Sprint(got)))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "bench-text", "v", "bench-bytes-bin", "\x00\x01\xfe")
	in := request(900, 1)
	for _, name := range []string{"check-ok", "check-error"} {
		in.Claims[0].Name = name
		var header, trailer metadata.MD
		_, err := client.NodePrepareResources(ctx, in, grpc.Header(&header), grpc.Trailer(&trailer))
		if name == "check-ok" {
			expect(err == nil, "error", err)
		} else {
			got := status.Convert(err)
			// A text in front of the driver's own is allowed, anything else is not.
			expect(got.Code() == codes.FailedPrecondition, "code", got.Code())
			expect(strings.HasSuffix(got.Message(), "nö %, two\nlines"), "message", got.Message())
			expect(len(got.Details()) == 1, "details", got.Details())
		}
		expect(strings.Join(header["bench-header"], "") == "h", name+" header", header)
		expect(strings.Join(header["bench-header-bin"], "") == "\x00\xff\x01", name+" binary header", header)
		expect(strings.Join(trailer["bench-text"], "") == "v", name+" metadata", trailer)
		expect(strings.Join(trailer["bench-bytes-bin"], "") == "\x00\x01\xfe", name+" binary metadata", trailer)
		left, _ := strconv.Atoi(strings.Join(trailer["bench-left-ms"], ""))
		expect(left > 15000 && left <= 30000, name+" deadline", left)
	}
	in.Claims[0].Name = "check-deadline"
	short, stop := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer stop()
	began := time.Now()
	_, err := client.NodePrepareResources(short, in)
	expect(status.Code(err) == codes.DeadlineExceeded && time.Since(began) < 600*time.Millisecond, "short deadline", err)
	call(client, request(0, manyUIDs))
	expect(failures.Load() == 0, "many claims", failures.Load())
	return result{"wrong": wrong}
}

func main() {
	mode, socket, n := os.Args[1], os.Args[2], 0
	if len(os.Args) > 3 {
		n, _ = strconv.Atoi(os.Args[3])
	}
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	client := dra.NewDRAPluginClient(conn)
	var out result
	switch mode {
	case "first": // when the first call is answered, in unix nanoseconds; tried each millisecond
		for {
			if probe, err := net.Dial("unix", socket); err == nil {
				probe.Close()
				break
			}
			time.Sleep(time.Millisecond)
		}
		call(client, request(0, 1))
		out = result{"answered": time.Now().UnixNano(), "failures": failures.Load()}
	case "seq":
		sequence(client, 200, 1)
		out = summary(sequence(client, n, 1))
	case "conc":
		parallel(client, 200)
		times, rate := parallel(client, n)
		out = summary(times)
		out["rate"] = rate
	case "large":
		sequence(client, 5, manyUIDs)
		out = summary(sequence(client, n, manyUIDs))
	case "stream":
		out = watch(conn, n)
	case "check":
		out = check(client)
	}
	line, _ := json.Marshal(out)
	fmt.Println(string(line))
}
