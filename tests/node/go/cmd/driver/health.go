package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

const (
	heartbeat     = time.Second
	healthTimeout = 4 * time.Second // of each report, at the kubelet
)

// WatchHealthStatus reports all devices once a second, as rules with the op "health" say: `device` is
// unhealthy with the message `text`. The texts "silent" and "end" stop reports and end the stream.
func (d *driver) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	if d.settings.health == "unsupported" {
		return kubeletplugin.ErrHealthNotSupported
	}
	d.rec.write(entry{"m": "health", "event": "stream"})
	defer func() { d.rec.write(entry{"m": "health", "event": "end"}) }()
	for {
		rules, err := d.script.read()
		if err != nil {
			return err
		}
		report, words := d.report(rules)
		switch words {
		case "end":
			return errors.New("the script ends the health stream")
		case "silent":
		default:
			select {
			case reports <- report:
				d.rec.write(entry{"m": "health", "event": "report", "health": words})
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(heartbeat):
		}
	}
}

func (d *driver) report(rules []rule) (kubeletplugin.DeviceHealthReport, string) {
	report, words := kubeletplugin.DeviceHealthReport{}, []string{}
	for i := range d.settings.devices {
		name := fmt.Sprintf("gpu-%d", i)
		device := kubeletplugin.DeviceHealth{PoolName: d.settings.node, DeviceName: name, Health: kubeletplugin.HealthStatusHealthy, HealthCheckTimeout: healthTimeout, LastUpdated: time.Now()}
		for _, r := range rules {
			switch {
			case r.Op != "health":
			case r.Text == "end" || r.Text == "silent":
				return report, r.Text
			case strings.Contains(name, r.Device):
				device.Health, device.Message = kubeletplugin.HealthStatusUnhealthy, r.Text
			}
		}
		words = append(words, name+"="+string(device.Health))
		report.Devices = append(report.Devices, device)
	}
	return report, strings.Join(words, " ")
}
