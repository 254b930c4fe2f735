package main

import (
	"context"
	"path"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"k8s.io/apimachinery/pkg/types"
)

// permanentError is the field KEP-5322 gives to permanent_error; the API of this version lacks it.
const permanentError = protowire.Number(3)

// intercept sees every unary call, registration included: it notes arrival and answer, and adds to
// the answer what the helper of this version cannot say.
func (d *driver) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	method := path.Base(info.FullMethod)
	began := time.Now()
	service := path.Base(path.Dir(info.FullMethod))
	arrived := entry{"m": "arrive", "method": method, "service": service, "claims": claimUIDs(req)}
	if request, ok := req.(interface{ GetPluginRegistered() bool }); ok {
		arrived["registered"] = request.GetPluginRegistered()
	}
	d.rec.write(arrived)
	var resp any
	err := d.registration(ctx, method)
	if err == nil {
		resp, err = handler(ctx, req)
	}
	if message, ok := resp.(proto.Message); ok && err == nil && method == "NodePrepareResources" {
		d.markPermanent(message.ProtoReflect())
	}
	d.rec.write(entry{"m": "answer", "method": method, "claims": claimUIDs(req), "code": int(status.Code(err)), "took": time.Since(began).Seconds()})
	return resp, err
}

// registration fails a call of the registration service where a rule's op is its name.
func (d *driver) registration(ctx context.Context, method string) error {
	r, err := d.script.named(method)
	if err != nil {
		return err
	}
	r.sleep(ctx)
	if r.Text == "" {
		return nil
	}
	code := codes.Code(r.Code)
	if code == codes.OK {
		code = codes.Unknown
	}
	return status.Error(code, r.Text)
}

// markPermanent works on reflection because the answer has one Go type per API version.
func (d *driver) markPermanent(response protoreflect.Message) {
	d.mu.Lock()
	defer d.mu.Unlock()
	field := response.Descriptor().Fields().ByName("claims")
	if field == nil || !field.IsMap() {
		return
	}
	response.Get(field).Map().Range(func(uid protoreflect.MapKey, value protoreflect.Value) bool {
		if d.permanent[types.UID(uid.String())] {
			claim := value.Message()
			raw := protowire.AppendTag(claim.GetUnknown(), permanentError, protowire.VarintType)
			claim.SetUnknown(protowire.AppendVarint(raw, 1))
		}
		return true
	})
}

// claimUIDs names the claims of a prepare or unprepare request of any API version.
func claimUIDs(req any) []string {
	message, ok := req.(proto.Message)
	if !ok {
		return nil
	}
	reflected := message.ProtoReflect()
	field := reflected.Descriptor().Fields().ByName("claims")
	if field == nil || !field.IsList() {
		return nil
	}
	list := reflected.Get(field).List()
	uids := make([]string, 0, list.Len())
	for i := range list.Len() {
		claim := list.Get(i).Message()
		uids = append(uids, claim.Get(claim.Descriptor().Fields().ByName("uid")).String())
	}
	return uids
}
