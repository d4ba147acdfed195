// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"sigs.k8s.io/yaml"

	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/test/lab/critest"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// Names of the ways to the runtime.
const (
	wayDirect   = "direct"
	wayRelay    = "relay"
	wayOurs     = "ours"
	wayUpstream = "upstream"
	wayAsked    = "direct, our request"
)

// maxReply is kubelet's limit of one CRI message in bytes.
const maxReply = 16 << 20

// way is a socket that leads to the runtime.
type way struct {
	name, socket string
	pid          int // of what stands in between, 0 where nothing does
}

// road is all ways to one runtime, open at the same time.
type road struct {
	ways []*way
	// ours settles and is stopped by the rig, relay too; upstream is nil where it could not be started, and why says so.
	ours     *process
	relay    *process
	upstream *critest.UpstreamProxy
	why      error
}

// way finds one by its name, nil where it is not there.
func (rd *road) way(name string) *way {
	for _, w := range rd.ways {
		if w.name == name {
			return w
		}
	}
	return nil
}

// openRoad starts our proxy, upstream's and the relay before the rig's containerd. Upstream's may fail, ours may not.
func (b *bench) openRoad(ctx context.Context, r *rig) (*road, error) {
	dir, err := os.MkdirTemp(r.host.Dir, "road")
	if err != nil {
		return nil, fmt.Errorf("create folder of the proxies: %w", err)
	}
	rd := &road{ways: []*way{{name: wayDirect, socket: r.host.Socket}}}
	if rd.relay, err = b.startRelay(ctx, r, dir); err != nil {
		return nil, err
	}
	if rd.ours, err = b.startProxy(ctx, r, dir); err != nil {
		return nil, err
	}
	rd.ways = append(rd.ways,
		&way{wayRelay, filepath.Join(dir, "relay.sock"), rd.relay.cmd.Process.Pid},
		&way{wayOurs, filepath.Join(dir, "ours.sock"), rd.ours.cmd.Process.Pid})
	up := filepath.Join(dir, "up", "s")
	if rd.upstream, rd.why = startUpstream(ctx, r, up, filepath.Join(dir, "upstream.log")); rd.why != nil {
		b.say("proxy: without upstream's: %v", rd.why)
		return rd, nil
	}
	rd.ways = append(rd.ways, &way{wayUpstream, up, rd.upstream.Pid()})
	return rd, nil
}

// close stops what stands in between.
func (rd *road) close() error {
	var errs []error
	if rd.upstream != nil {
		errs = append(errs, rd.upstream.Close())
	}
	return errors.Join(append(errs, rd.ours.stop(), rd.relay.stop())...)
}

func startUpstream(ctx context.Context, r *rig, socket, log string) (*critest.UpstreamProxy, error) {
	cache, err := parts.Open(parts.Options{Progress: os.Stderr})
	if err != nil {
		return nil, err
	}
	return critest.StartUpstreamProxy(ctx, critest.UpstreamOptions{Cache: cache, Endpoint: socket, Runtime: r.host.Socket, Log: log})
}

// launchWay starts a process that listens on socket and waits until ready agrees.
func launchWay(ctx context.Context, r *rig, p *process, socket string, ready func() error) error {
	p.ready = func() error {
		if _, err := os.Stat(socket); err != nil {
			return fmt.Errorf("wait for its socket: %w", err)
		}
		return ready()
	}
	if err := p.start(); err != nil {
		return err
	}
	r.plugins = append(r.plugins, p)
	return p.wait(ctx)
}

// startRelay passes bytes as fast as a process in between can, at our proxy's nice value.
func (b *bench) startRelay(ctx context.Context, r *rig, dir string) (*process, error) {
	path, err := b.build(ctx, "relay", "./test/bench/relay")
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, "relay.sock")
	p := &process{name: wayRelay, exited: make(chan struct{}), log: filepath.Join(dir, "relay.log")}
	p.cmd = exec.Command(path, "-listen", socket, "-backend", r.host.Socket, "-nice", strconv.Itoa(b.o.noopNice), "-buffer", strconv.Itoa(b.o.proxy.buffer))
	return p, launchWay(ctx, r, p, socket, func() error { return nil })
}

// startProxy starts koord-runtime-proxy with the strategy of LS and BE pods and waits until it has taken in the runtime.
func (b *bench) startProxy(ctx context.Context, r *rig, dir string) (*process, error) {
	p := &process{name: "koord-runtime-proxy", exited: make(chan struct{}), log: filepath.Join(dir, "ours.log")}
	var err error
	if p.run, err = runDir(); err != nil {
		return nil, err
	}
	p.metrics = filepath.Join(p.run, "metrics.sock")
	socket, path := filepath.Join(dir, "ours.sock"), filepath.Join(dir, "proxy.yaml")
	text, err := proxyConfig(r, p.run, dir, socket)
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write configuration: %w", err), os.RemoveAll(p.run))
	}
	p.cmd = exec.Command(filepath.Join(b.o.bin, "koord-runtime-proxy"), "--config", path)
	if err = launchWay(ctx, r, p, socket, p.connected); p.cmd.Process == nil { // else the rig removes the folder
		err = errors.Join(err, os.RemoveAll(p.run))
	}
	return p, err
}

// proxyConfig is koord-runtime-proxy's configuration, as a node with LS and BE pods has it.
func proxyConfig(r *rig, run, dir, socket string) ([]byte, error) {
	var spec any
	if err := yaml.Unmarshal([]byte(classStrategy), &spec); err != nil {
		return nil, fmt.Errorf("parse strategy: %w", err)
	}
	return yaml.Marshal(map[string]any{
		"apiVersion": "koord-rt.dev/v1alpha1", "kind": "ProxyConfig",
		"endpoint": socket, "runtimeEndpoint": "unix://" + r.host.Socket,
		"runDir": run, "stateDir": filepath.Join(dir, "state"), "strategyFile": filepath.Join(dir, "none.yaml"),
		"hooks":    map[string]any{"dir": filepath.Join(dir, "hookserver.d")},
		"host":     map[string]any{"kubepodsRoot": "/" + r.host.Cgroup, "cdiDirs": []string{r.host.CDI}},
		"metrics":  map[string]any{"address": "unix:" + filepath.Join(run, "metrics.sock")},
		"strategy": spec,
	})
}

// connected says whether our proxy has taken in the runtime's list, from its status file.
func (p *process) connected() error {
	entries, err := status.ReadAll(p.run, "/proc")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Status.PID == p.cmd.Process.Pid && !e.Status.ConnectedSince.IsZero() {
			return nil
		}
	}
	return errors.New("it is not connected yet")
}

// dialWay connects a client, with a connection of its own, as the kubelet does.
func dialWay(w *way) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix:"+w.socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply)))
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", w.name, err)
	}
	conn.Connect()
	return conn, nil
}

// unread sends bytes and counts those of the reply without decoding them: the client's own work, the same on every way,
// then adds no noise.
type unread struct{}

// Name is that of the codec of real clients, so that the request looks the same.
func (unread) Name() string { return "proto" }

// Marshal sends a []byte as it is.
func (unread) Marshal(v any) (mem.BufferSlice, error) {
	data, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("send %T: not bytes", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(data)}, nil
}

// Unmarshal puts the length of a reply into an *int.
func (unread) Unmarshal(data mem.BufferSlice, v any) error {
	n, ok := v.(*int)
	if !ok {
		return fmt.Errorf("receive into %T: not a number", v)
	}
	*n = data.Len()
	return nil
}

// callUnread times one call with an empty request and returns the seconds and the reply's bytes.
func callUnread(ctx context.Context, conn *grpc.ClientConn, method string) (seconds float64, size int, err error) {
	begin := time.Now()
	err = conn.Invoke(ctx, method, []byte{}, &size, grpc.ForceCodecV2(unread{}))
	return time.Since(begin).Seconds(), size, err
}
