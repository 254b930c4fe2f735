package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

const lookForDrop = 200 * time.Millisecond

// conns logs how many connections are open at the service socket, and closes all of them when a rule
// with the op "drop" appears.
type conns struct {
	net.Listener
	rec  *recorder
	mu   sync.Mutex
	open map[*conn]bool
}

type conn struct {
	net.Conn
	owner *conns
}

// counting lets the helper listen as it does by itself, with an eye on the connections.
func counting(ctx context.Context, rec *recorder, s *script) kubeletplugin.Option {
	return kubeletplugin.PluginListener(func(_ context.Context, path string) (net.Listener, error) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		listener, err := net.Listen("unix", path)
		if err != nil {
			return nil, err
		}
		c := &conns{Listener: listener, rec: rec, open: map[*conn]bool{}}
		go c.obey(ctx, s)
		return c, nil
	})
}

func (c *conns) Accept() (net.Conn, error) {
	accepted, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	made := &conn{Conn: accepted, owner: c}
	c.note(made, true)
	return made, nil
}

func (c *conn) Close() error {
	c.owner.note(c, false)
	return c.Conn.Close()
}

func (c *conns) note(one *conn, open bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[one] == open {
		return
	}
	if open {
		c.open[one] = true
	} else {
		delete(c.open, one)
	}
	c.rec.write(entry{"m": "connections", "open": len(c.open)})
}

// obey drops once for each time that the rule appears.
func (c *conns) obey(ctx context.Context, s *script) {
	dropped := false
	for ctx.Err() == nil {
		wanted := false
		rules, err := s.read()
		if err != nil {
			fmt.Fprintln(os.Stderr, "driver: connections:", err)
		}
		for _, r := range rules {
			wanted = wanted || r.Op == "drop"
		}
		if wanted && !dropped {
			c.drop()
		}
		dropped = wanted
		select {
		case <-ctx.Done():
		case <-time.After(lookForDrop):
		}
	}
}

func (c *conns) drop() {
	c.mu.Lock()
	all := make([]*conn, 0, len(c.open))
	for one := range c.open {
		all = append(all, one)
	}
	c.mu.Unlock()
	for _, one := range all {
		one.Close()
	}
	c.rec.write(entry{"m": "dropped", "connections": len(all)})
}
