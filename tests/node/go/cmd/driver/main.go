// Command driver is a DRA driver on the real kubeletplugin helper whose answers a control file scripts.
//
// It stands where a vendor's driver would: same helper, same sockets, same ResourceSlices. Every call
// is written to a log, one JSON object a line, so that a test can count what reached the driver.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

type settings struct {
	name, node, kubeconfig string
	registry, data         string
	control, log           string
	devices                int
	publish                bool
	instance               string
	versions, health       string
	oneSocket              bool
}

func parse() settings {
	var s settings
	flag.StringVar(&s.name, "name", "gpu.example.com", "driver name")
	flag.StringVar(&s.node, "node", "", "node name, also the name of the pool")
	flag.StringVar(&s.kubeconfig, "kubeconfig", "", "kubeconfig file")
	flag.StringVar(&s.registry, "registry", "/var/lib/kubelet/plugins_registry", "folder of the registration socket")
	flag.StringVar(&s.data, "data", "", "folder of the service socket")
	flag.StringVar(&s.control, "control", "", "JSON list of rules, read again at every call")
	flag.StringVar(&s.log, "log", "", "file to which calls are appended, one JSON object a line")
	flag.IntVar(&s.devices, "devices", 4, "number of devices to publish")
	flag.BoolVar(&s.publish, "publish", true, "publish ResourceSlices")
	flag.StringVar(&s.instance, "instance", "", "pod UID of this instance; switches rolling updates on")
	flag.StringVar(&s.versions, "versions", "v1,v1beta1", "versions of the DRAPlugin service to serve")
	flag.StringVar(&s.health, "health", "unsupported", "versions of the health service to serve, none, or unsupported: served, but each stream is refused")
	flag.BoolVar(&s.oneSocket, "one-socket", false, "serve DRA on the registration socket too")
	flag.Parse()
	return s
}

func main() {
	if err := run(parse()); err != nil {
		fmt.Fprintln(os.Stderr, "driver:", err)
		os.Exit(1)
	}
}

func run(s settings) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	rec, err := openRecorder(s.log, s.instance)
	if err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(s.data, 0o700), os.MkdirAll(s.registry, 0o700)); err != nil {
		return err
	}
	d := &driver{settings: s, name: s.name, script: &script{file: s.control, used: map[string]int{}}, rec: rec, permanent: map[types.UID]bool{}}
	opts := options(s, client, d)
	common := newFront(s)
	if s.oneSocket {
		opts = append(opts, common.options()...)
	} else {
		opts = append(opts, counting(ctx, rec, d.script))
	}
	helper, err := kubeletplugin.Start(ctx, d, opts...)
	if err != nil {
		return err
	}
	// The context of the signal ends the helper's sockets; Stop waits until they are gone.
	defer helper.Stop()
	if s.oneSocket {
		if err := common.start(); err != nil {
			return err
		}
		defer common.stop()
	}
	if s.publish {
		if err := helper.PublishResources(ctx, resources(s)); err != nil {
			return err
		}
	}
	rec.write(entry{"m": "started", "pid": os.Getpid()})
	<-ctx.Done()
	rec.write(entry{"m": "stopping"})
	return nil
}

func options(s settings, client kubernetes.Interface, d *driver) []kubeletplugin.Option {
	opts := []kubeletplugin.Option{
		kubeletplugin.DriverName(s.name),
		kubeletplugin.NodeName(s.node),
		kubeletplugin.KubeClient(client),
		kubeletplugin.RegistrarDirectoryPath(s.registry),
		kubeletplugin.PluginDataDirectoryPath(s.data),
		kubeletplugin.Serialize(false),
		kubeletplugin.GRPCInterceptor(d.intercept),
	}
	if s.health != "unsupported" {
		opts = append(opts, kubeletplugin.HealthService(s.health != "none"))
		opts = append(opts, kubeletplugin.HealthV1(has(s.health, "v1")), kubeletplugin.HealthV1alpha1(has(s.health, "v1alpha1")))
	}
	opts = append(opts, kubeletplugin.NodeV1(has(s.versions, "v1")), kubeletplugin.NodeV1beta1(has(s.versions, "v1beta1")))
	if s.instance != "" {
		opts = append(opts, kubeletplugin.RollingUpdate(types.UID(s.instance)))
	}
	return opts
}

func has(list, word string) bool { return slices.Contains(strings.Split(list, ","), word) }

// resources lists the devices gpu-0, gpu-1 … in one pool that bears the node's name.
func resources(s settings) resourceslice.DriverResources {
	devices := make([]resourceapi.Device, 0, s.devices)
	for i := range s.devices {
		devices = append(devices, resourceapi.Device{Name: fmt.Sprintf("gpu-%d", i)})
	}
	slice := resourceslice.Slice{Devices: devices}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{s.node: {Slices: []resourceslice.Slice{slice}}}}
}
