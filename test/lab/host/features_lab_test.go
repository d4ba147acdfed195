// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package host_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"github.com/koord-rt/koord-rt/test/lab/host"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

const plainPod = "name: plain\nuid: plain-1\ncontainers: [{name: main}]\n"

// plugin is an NRI plugin that sets CPU shares and can be slow.
type plugin struct {
	delay  time.Duration
	ends   <-chan struct{} // ends the delay; may be nil
	closed chan struct{}

	mu   sync.Mutex
	seen []string
}

func (p *plugin) CreateContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	p.mu.Lock()
	p.seen = append(p.seen, pod.GetName()+"/"+c.GetName())
	p.mu.Unlock()
	select {
	case <-time.After(p.delay):
	case <-p.ends: // not ctx.Done: at the runtime's limit an answer could still come before the runtime notices
	}
	adjust := &api.ContainerAdjustment{}
	adjust.SetLinuxCPUShares(777)
	return adjust, nil, nil
}

func (p *plugin) containers() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.seen)
}

func (l *lane) connect(t *testing.T, p *plugin) {
	t.Helper()
	p.closed = make(chan struct{})
	s, err := stub.New(p, stub.WithPluginName("lab"), stub.WithPluginIdx("10"), stub.WithSocketPath(l.NRISocket),
		stub.WithOnClose(func() { close(p.closed) }))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
}

func TestNRI(t *testing.T) {
	for _, version := range []string{parts.Containerd24, parts.Containerd20, parts.Containerd17} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			l := start(t, host.Options{Version: version, RequestTimeout: time.Minute})
			p := &plugin{}
			l.connect(t, p)
			r := l.runPod(t, plainPod)
			l.want(t, l.container(r, "main"), "cpu", "cpu.shares=777", "cpu.weight=81")
			if seen := p.containers(); len(seen) != 1 || seen[0] != "plain/main" {
				t.Errorf("plugin saw %v", seen)
			}
			checkNothingLeft(t, l)
		})
	}
}

// A plugin slower than RequestTimeout is disconnected, and the container runs without it.
func TestNRITimeout(t *testing.T) {
	t.Parallel()
	const timeout = 6 * time.Second // the plugin's own configuration must fit into it, on a starved machine as well
	l := start(t, host.Options{RequestTimeout: timeout})
	p := &plugin{delay: time.Minute, ends: t.Context().Done()}
	l.connect(t, p)
	begin := time.Now()
	r := l.runPod(t, plainPod)
	if took := time.Since(begin); took < timeout || took > 50*time.Second { // less than the plugin would take
		t.Errorf("the pod took %s with a request timeout of %s", took, timeout)
	}
	l.want(t, l.container(r, "main"), "cpu", "cpu.shares=2", "cpu.weight=1")
	select {
	case <-p.closed:
	case <-time.After(time.Minute):
		t.Error("the slow plugin is still connected")
	}
	checkNothingLeft(t, l)
}

// Handlers, CDI specs and metrics, on every version.
func TestConfiguration(t *testing.T) {
	for _, version := range []string{parts.Containerd24, parts.Containerd20, parts.Containerd17} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			l := start(t, host.Options{Version: version, Handlers: []string{"other"}, PreStart: writeCDI})
			r := l.runPod(t, "name: a\nuid: cfg-1\nruntimeHandler: other\ncontainers: [{name: main, cdiDevices: [lab.test/dev=one]}]")
			out, err := l.CRI().ExecSync(t.Context(), r.Containers["main"], "sh", "-c", "echo $CDI_ENV")
			if err != nil || out.Stdout != "yes\n" {
				t.Errorf("CDI device: %+v, %v", out, err)
			}
			status, _, err := l.CRI().PodStatus(t.Context(), r.SandboxID)
			if err != nil || status.RuntimeHandler != "other" {
				t.Errorf("handler %q, %v", status.GetRuntimeHandler(), err)
			}
			resp, err := http.Get(l.Metrics)
			if err != nil {
				t.Fatal(err)
			}
			if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("metrics: %s, %v", resp.Status, err)
			}
			checkNothingLeft(t, l)
		})
	}
}

func writeCDI(p host.Paths) error {
	spec := `{"cdiVersion":"0.6.0","kind":"lab.test/dev","devices":[{"name":"one","containerEdits":{"env":["CDI_ENV=yes"]}}]}`
	return os.WriteFile(filepath.Join(p.CDI, "dev.json"), []byte(spec), 0o644)
}

// A drop-in adds a handler beside the one of the main file.
func TestDropIn(t *testing.T) {
	t.Parallel()
	l := start(t, host.Options{PreStart: func(p host.Paths) error {
		const runtime = `plugins."io.containerd.cri.v1.runtime".containerd.runtimes.dropped`
		text := fmt.Sprintf("version = 3\n[%s]\nruntime_type = \"io.containerd.runc.v2\"\n[%s.options]\nBinaryName = %q\nRoot = %q\n",
			runtime, runtime, p.RuncBin, p.Runc)
		return os.WriteFile(filepath.Join(p.DropIns, "10-handler.toml"), []byte(text), 0o644)
	}})
	l.runPod(t, "name: a\nuid: drop-1\nruntimeHandler: dropped\ncontainers: [{name: main}]")
	l.runPod(t, "name: b\nuid: drop-2\nruntimeHandler: runc\ncontainers: [{name: main}]")
	checkNothingLeft(t, l)
}
