package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1"
	dra "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// raw passes messages as they are; the name keeps the content-type what it is for protobuf.
type raw struct{}

func (raw) Name() string { return "proto" }
func (raw) Marshal(v any) ([]byte, error) {
	return *v.(*[]byte), nil
}
func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte{}, data...)
	return nil
}

// command is one line of standard input.
type command struct {
	ID       int         `json:"id"`
	Op       string      `json:"op"`
	Conn     string      `json:"conn"`
	Target   string      `json:"target"`
	IdleMs   int         `json:"idleMs"`
	Method   string      `json:"method"`
	Messages [][]byte    `json:"messages"`
	Stream   bool        `json:"stream"`
	Metadata [][2]string `json:"metadata"` // binary values are latin-1
	TimeoMs  int         `json:"timeoutMs"`
	Call     int         `json:"call"`
	Error    *string     `json:"error"`
}

// connection is what kubelet keeps per plugin: one ClientConn, connected again whenever it ends.
type connection struct {
	*grpc.ClientConn
	begins, ends atomic.Int32
}

func (c *connection) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (c *connection) HandleRPC(context.Context, stats.RPCStats)                         {}
func (c *connection) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (c *connection) HandleConn(_ context.Context, event stats.ConnStats) {
	switch event.(type) {
	case *stats.ConnBegin:
		c.begins.Add(1)
	case *stats.ConnEnd:
		c.ends.Add(1)
		go c.Connect() // as kubelet since 1.34.1
	}
}

var (
	connections sync.Map // name -> *connection
	cancels     sync.Map // id -> context.CancelFunc
)

func kubelet() {
	input := lines()
	for input.Scan() {
		var c command
		if err := json.Unmarshal(input.Bytes(), &c); err != nil {
			say(object{"event": "bad command", "error": err.Error()})
			continue
		}
		go func() {
			answer := c.run()
			answer["id"] = c.ID
			say(answer)
		}()
	}
}

func (c command) run() object {
	switch c.Op {
	case "dial":
		return c.dial()
	case "register":
		return c.register()
	case "cancel":
		if cancel, ok := cancels.Load(c.Call); ok {
			cancel.(context.CancelFunc)()
		}
		return object{}
	}
	found, ok := connections.Load(c.Conn)
	if !ok {
		return object{"error": "no connection " + c.Conn}
	}
	conn := found.(*connection)
	switch c.Op {
	case "state":
		return object{"state": conn.GetState().String(), "begins": conn.begins.Load(), "ends": conn.ends.Load()}
	case "close":
		connections.Delete(c.Conn)
		return object{"error": errors.Join(conn.Close())}
	case "call":
		return c.call(conn)
	}
	return object{"error": "unknown op " + c.Op}
}

// dial makes a connection as kubelet's dra_plugin_manager does: insecure, "unix:" and nothing else.
func (c command) dial() object {
	conn := &connection{}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStatsHandler(conn),
	}
	if c.IdleMs > 0 {
		options = append(options, grpc.WithIdleTimeout(time.Duration(c.IdleMs)*time.Millisecond))
	}
	client, err := grpc.NewClient("unix:"+c.Target, options...)
	if err != nil {
		return object{"error": err.Error()}
	}
	conn.ClientConn = client
	connections.Store(c.Conn, conn)
	client.Connect()
	return object{}
}

// register does what kubelet's plugin manager does, with its deprecated way to dial: the authority is
// the percent-encoded path of the socket. An error is told to the plugin.
func (c command) register() object {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := grpc.DialContext(ctx, c.Target, //nolint:staticcheck
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithBlock(), //nolint:staticcheck
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}))
	if err != nil {
		return object{"error": err.Error()}
	}
	defer conn.Close()
	client := registration.NewRegistrationClient(conn)
	infoCtx, infoCancel := context.WithTimeout(ctx, time.Second)
	defer infoCancel()
	info, err := client.GetInfo(infoCtx, &registration.InfoRequest{})
	if err != nil {
		return object{"error": err.Error(), "code": status.Code(err)}
	}
	told := &registration.RegistrationStatus{PluginRegistered: c.Error == nil}
	if c.Error != nil {
		told.Error = *c.Error
	}
	notifyCtx, notifyCancel := context.WithTimeout(ctx, 5*time.Second)
	defer notifyCancel()
	_, err = client.NotifyRegistrationStatus(notifyCtx, told)
	return object{
		"type": info.Type, "name": info.Name, "endpoint": info.Endpoint,
		"versions": info.SupportedVersions, "code": status.Code(err), "message": status.Convert(err).Message(),
	}
}

func (c command) call(conn *connection) object {
	ctx, cancel := context.WithCancel(context.Background())
	if c.TimeoMs > 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(c.TimeoMs)*time.Millisecond)
	}
	defer cancel()
	cancels.Store(c.ID, cancel)
	defer cancels.Delete(c.ID)
	for _, pair := range c.Metadata {
		ctx = metadata.AppendToOutgoingContext(ctx, pair[0], fromLatin1(pair[1]))
	}
	began := time.Now()
	var header, trailer metadata.MD
	var bodies [][]byte
	var err error
	if c.Stream {
		bodies, header, trailer, err = c.stream(ctx, conn)
	} else {
		var body []byte
		err = conn.Invoke(ctx, c.Method, &c.Messages[0], &body,
			grpc.ForceCodec(raw{}), grpc.Header(&header), grpc.Trailer(&trailer))
		if err == nil {
			bodies = [][]byte{body}
		}
	}
	answer := object{
		"code": status.Code(err), "message": status.Convert(err).Message(), "messages": bodies,
		"header": pairs(header), "trailer": pairs(trailer), "ms": time.Since(began).Milliseconds(),
	}
	if err == nil && !c.Stream {
		answer["read"] = read(c.Method, bodies[0])
	}
	if s := status.Convert(err); len(s.Details()) > 0 {
		answer["details"], _ = proto.Marshal(s.Proto())
	}
	return answer
}

func (c command) stream(ctx context.Context, conn *connection) ([][]byte, metadata.MD, metadata.MD, error) {
	desc := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	stream, err := conn.NewStream(ctx, desc, c.Method, grpc.ForceCodec(raw{}))
	if err != nil {
		return nil, nil, nil, err
	}
	for _, message := range c.Messages {
		if err := stream.SendMsg(&message); err != nil && !errors.Is(err, io.EOF) {
			return nil, nil, nil, err
		}
	}
	stream.CloseSend()
	bodies := [][]byte{}
	for {
		var body []byte
		if err = stream.RecvMsg(&body); err != nil {
			break
		}
		bodies = append(bodies, body)
		say(object{"event": "received", "call": c.ID, "message": body})
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	header, _ := stream.Header()
	return bodies, header, stream.Trailer(), err
}

// read takes an answer apart with kubelet's own stubs: what Go's protobuf makes of the bytes.
func read(method string, body []byte) object {
	switch method {
	case dra.DRAPlugin_NodePrepareResources_FullMethodName:
		message := &dra.NodePrepareResourcesResponse{}
		if err := proto.Unmarshal(body, message); err != nil {
			return object{"error": err.Error()}
		}
		claims := object{}
		for uid, claim := range message.Claims {
			devices := []string{}
			for _, device := range claim.Devices {
				devices = append(devices, device.DeviceName)
			}
			claims[uid] = object{"error": claim.Error, "devices": devices, "unknown": []byte(claim.ProtoReflect().GetUnknown())}
		}
		return object{"claims": claims, "unknown": []byte(message.ProtoReflect().GetUnknown())}
	case health.DRAResourceHealth_NodeWatchResources_FullMethodName:
		message := &health.NodeWatchResourcesResponse{}
		return object{"error": proto.Unmarshal(body, message), "devices": len(message.Devices)}
	}
	return nil
}

func fromLatin1(text string) string {
	out := make([]byte, 0, len(text))
	for _, r := range text {
		out = append(out, byte(r))
	}
	return string(out)
}
