package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// driver answers the helper's calls as the script says.
type driver struct {
	settings settings
	name     string
	script   *script
	rec      *recorder

	mu        sync.Mutex
	permanent map[types.UID]bool // claims whose last prepare error is a permanent one
}

func (d *driver) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		devices := d.allocated(claim)
		names := make([]string, 0, len(devices))
		for _, device := range devices {
			names = append(names, device.DeviceName)
		}
		object := kubeletplugin.NamespacedObject{UID: claim.UID}
		object.Namespace, object.Name = claim.Namespace, claim.Name
		claimErr, callErr := d.answer(ctx, "prepare", object, names)
		if callErr != nil {
			return nil, callErr
		}
		if claimErr != nil {
			devices = nil
		}
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: claimErr}
	}
	return results, nil
}

func (d *driver) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		claimErr, callErr := d.answer(ctx, "unprepare", claim, nil)
		if callErr != nil {
			return nil, callErr
		}
		results[claim.UID] = claimErr
	}
	return results, nil
}

// answer follows the script for one claim: an error of the claim, or one of the whole call, or none.
func (d *driver) answer(ctx context.Context, op string, claim kubeletplugin.NamespacedObject, devices []string) (claimErr, callErr error) {
	began := time.Now()
	line := entry{"m": op, "claim": claim.Name, "namespace": claim.Namespace, "uid": claim.UID, "devices": devices}
	if deadline, ok := ctx.Deadline(); ok {
		line["deadline"] = time.Until(deadline).Seconds()
	}
	r, err := d.script.next(op, claim.Name, claim.UID, devices)
	if err != nil {
		// A broken script must fail the test, not look like a healthy driver.
		return err, nil
	}
	r.sleep(ctx)
	switch {
	case r.Text == "":
	case r.Code != 0:
		callErr = status.Error(codes.Code(r.Code), r.Text)
	default:
		claimErr = errors.New(r.Text)
	}
	d.mu.Lock()
	d.permanent[claim.UID] = op == "prepare" && claimErr != nil && r.Permanent
	d.mu.Unlock()
	line["error"], line["code"], line["permanent"] = r.Text, r.Code, r.Permanent
	line["began"], line["took"] = seconds(began), time.Since(began).Seconds()
	d.rec.write(line)
	return claimErr, callErr
}

// allocated lists the devices of a claim that are this driver's.
func (d *driver) allocated(claim *resourceapi.ResourceClaim) []kubeletplugin.Device {
	var devices []kubeletplugin.Device
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver == d.name {
			devices = append(devices, kubeletplugin.Device{Requests: []string{result.Request}, PoolName: result.Pool, DeviceName: result.Device})
		}
	}
	return devices
}

func (d *driver) HandleError(ctx context.Context, err error, msg string) {
	runtime.HandleErrorWithContext(ctx, err, msg)
}
