// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/test/lab/child"
	"github.com/koord-rt/koord-rt/test/lab/cri"
	"github.com/koord-rt/koord-rt/test/lab/gate"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
	"github.com/koord-rt/koord-rt/test/scenario"
)

// viaProxy is a rig with koord-runtime-proxy between its kubelet and its containerd.
type viaProxy struct {
	*rig
	client *cri.Client
	socket string
	cmd    *exec.Cmd
	exited <-chan struct{}
	out    *syncBuffer
	// revived is when the proxy was last started again, in nanoseconds since 1970.
	revived *atomic.Int64
}

// newProxyRig has a containerd as o says and no proxy yet.
func newProxyRig(t *testing.T, o rigOptions) *viaProxy {
	p := &viaProxy{rig: newRig(t, o), out: &syncBuffer{}, revived: &atomic.Int64{}}
	p.proxyLog = p.out
	t.Cleanup(func() {
		p.end(syscall.SIGTERM)
		if t.Failed() {
			t.Logf("koord-runtime-proxy's log:\n%s", tail(p.out.String(), 6000))
		}
	})
	return p
}

// proxyConfig is the configuration for a scenario, nil for no strategy.
func (p *viaProxy) proxyConfig(s *scenario.Scenario, more map[string]any) []byte {
	p.t.Helper()
	config, manifest := map[string]any{}, ""
	if s != nil {
		text, err := s.NRIConfig(p.base())
		if err != nil {
			p.t.Fatal(err)
		}
		first, rest, _ := strings.Cut(string(text), "\n---\n")
		if err := yaml.Unmarshal([]byte(first), &config); err != nil {
			p.t.Fatal(err)
		}
		manifest = rest
	} else {
		for k, v := range p.base() {
			config[k] = v
		}
	}
	delete(config, "socket")
	dir := filepath.Dir(p.config)
	p.socket = filepath.Join(dir, "proxy.sock")
	config["apiVersion"], config["kind"] = "koord-rt.dev/v1alpha1", "ProxyConfig"
	config["endpoint"], config["runtimeEndpoint"] = p.socket, "unix://"+p.host.Socket
	config["hooks"] = map[string]any{"dir": filepath.Join(dir, "hookserver.d"), "timeout": "10s"}
	config["metrics"] = map[string]any{"address": "unix:" + filepath.Join(p.run, "proxy-metrics.sock")}
	for k, v := range more {
		config[k] = v
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		p.t.Fatal(err)
	}
	if manifest != "" {
		text = append(append(text, "---\n"...), manifest...)
	}
	return text
}

// begin starts the proxy and puts the kubelet behind it.
func (p *viaProxy) begin(config []byte) {
	p.t.Helper()
	path := filepath.Join(filepath.Dir(p.config), "proxy.yaml")
	if err := os.WriteFile(path, config, 0o600); err != nil {
		p.t.Fatal(err)
	}
	p.again()
	var err error
	if p.client, err = cri.Dial(p.socket); err != nil {
		p.t.Fatal(err)
	}
	p.kube.Through(p.client)
}

// again starts the process on the configuration that stands there.
func (p *viaProxy) again() {
	p.t.Helper()
	cmd := exec.Command(bin("koord-runtime-proxy"), "--config", filepath.Join(filepath.Dir(p.config), "proxy.yaml"))
	cmd.Stderr, cmd.Stdout = p.out, p.out
	exited := p.launched(cmd)
	p.cmd, p.exited = cmd, exited
	p.eventually(time.Minute, func() error {
		select {
		case <-exited:
			p.t.Fatalf("koord-runtime-proxy ended: %s\n%s", cmd.ProcessState, tail(p.out.String(), 3000))
		default:
		}
		entries, err := status.ReadAll(p.run, "/proc")
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.Status.PID == cmd.Process.Pid && !e.Status.ConnectedSince.IsZero() {
				p.revived.Store(time.Now().UnixNano())
				_, err := os.Stat(p.socket)
				return err
			}
		}
		return fmt.Errorf("koord-runtime-proxy (pid %d) is not connected yet", cmd.Process.Pid)
	})
}

// launched starts the command, behind a gate where the rig says so.
func (p *viaProxy) launched(cmd *exec.Cmd) <-chan struct{} {
	p.t.Helper()
	if p.gated {
		g, exited, err := gate.Start(cmd, p.tree.Mounts()...)
		if err != nil {
			p.t.Fatal(err)
		}
		p.gate = g
		return exited
	}
	exited, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		p.t.Fatal(err)
	}
	return exited
}

// end stops the proxy; the kubelet goes back to the runtime itself.
func (p *viaProxy) end(sig syscall.Signal) {
	if p.cmd == nil {
		return
	}
	p.kube.Through(p.host.CRI())
	_ = p.cmd.Process.Signal(sig) // it may have ended by itself
	limit := patience(shortest)
	select {
	case <-p.exited:
	case <-time.After(limit):
		p.t.Errorf("koord-runtime-proxy did not end within %s of %s", limit, sig)
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
	if p.client != nil && sig != syscall.SIGKILL {
		_ = p.client.Close() // of a connection that is gone
		p.client = nil
	}
	p.cmd = nil
}

func (p *viaProxy) subProxy(t *testing.T) *viaProxy {
	c := *p
	c.rig, c.out = p.rig.sub(t), &syncBuffer{}
	c.proxyLog = c.out
	t.Cleanup(func() {
		c.end(syscall.SIGTERM)
		if t.Failed() {
			t.Logf("koord-runtime-proxy's log:\n%s", tail(c.out.String(), 6000))
		}
	})
	return &c
}

// realDevices makes the scenario's nodes in /dev, too: CRI names a device by the path that the runtime finds it at.
func (p *viaProxy) realDevices(devices []scenario.Device) {
	p.t.Helper()
	for _, d := range devices {
		if dir := filepath.Dir(d.Path); os.Mkdir(dir, 0o755) == nil { // /dev/infiniband, where there is none
			p.t.Cleanup(func() {
				if err := os.Remove(dir); err != nil {
					p.t.Error(err)
				}
			})
		}
		err := unix.Mknod(d.Path, unix.S_IFCHR|0o600, int(unix.Mkdev(d.Major, d.Minor)))
		if errors.Is(err, unix.EEXIST) {
			p.t.Fatalf("%s is on this machine already: the scenario's would be another", d.Path)
		}
		if err != nil {
			p.t.Fatalf("make device node %s: %v", d.Path, err)
		}
		p.t.Cleanup(func() {
			if err := os.Remove(d.Path); err != nil {
				p.t.Error(err)
			}
		})
	}
}

// stamped compares the annotation of every container with the wanted plan, as far as a request can carry it.
func (p *viaProxy) stamped(s *scenario.Scenario, pods map[string]*kubelet.Running) {
	p.t.Helper()
	plan := s.Applied(p.version)
	for _, pod := range s.Pods {
		namespace := pod.Namespace
		if namespace == "" {
			namespace = "default"
		}
		for _, c := range pod.Containers {
			name := namespace + "/" + pod.Name + "/" + c.Name
			st, _, err := p.host.CRI().ContainerStatus(p.t.Context(), pods[pod.Name].Containers[c.Name])
			if err != nil {
				p.t.Errorf("%s: %v", name, err)
				continue
			}
			text := st.Annotations[protocol.AnnotationApplied]
			if len(plan[name]) == 0 {
				if text != "" {
					p.t.Errorf("%s is left alone by the plan, but carries %s", name, text)
				}
				continue
			}
			if text == "" && (len(plan[name]) == 1 && plan[name][orderKnob] != "" || p.unmarked(pod.FullName())) {
				continue
			}
			got, err := protocol.ParseApplied(text)
			if err != nil || !strings.HasPrefix(got.By, "koord-runtime-proxy/") {
				p.t.Errorf("%s: annotation %q is not the proxy's (%v)", name, text, err)
			}
		}
	}
}

// Conformance, third leg: the same scenarios through the proxy, on a runtime without NRI, end in the same kernel state.

func TestHostProxyScenarios(t *testing.T) { proxyScenarios(t, rigOptions{}) }

func TestGuestProxyScenarios(t *testing.T) { proxyScenarios(t, rigOptions{}) }

// TestGuestSystemdProxyScenarios is the same with systemd's cgroup driver.
func TestGuestSystemdProxyScenarios(t *testing.T) {
	proxyScenarios(t, rigOptions{driver: kubelet.Systemd})
}

// measured: how long a start's values took that no request can carry stands in a metric, once for each such start.
func (p *viaProxy) measured(pods map[string]*kubelet.Running, wants []scenario.Want) {
	p.t.Helper()
	late, of := 0.0, map[string]bool{}
	for _, w := range wants {
		if w.File == "@sched" && w.Value != "0" {
			late++
			of[pods[w.Pod].Pod.FullName()] = true
		}
	}
	if late == 0 {
		return
	}
	p.excuses.Look()
	p.eventually(5*time.Second, func() error { // the value stands a moment before it has been read back
		n, seconds := p.proxyMetric("koord_rt_cri_after_start_seconds_count"), p.proxyMetric("koord_rt_cri_after_start_seconds_sum")
		switch {
		case n >= late && seconds > 0:
			p.t.Logf("after the runtime's answer to a start, its values took %.2f ms (mean of %v)", seconds/n*1000, n)
		default:
			err := fmt.Errorf("%v starts with values after them are measured, %v s: want %v", n, seconds, late)
			// A repair may have come before a handler that was late: it is missing, and no other.
			slow := slices.DeleteFunc(p.late(), func(pod string) bool { return !of[pod] })
			if slices.Sort(slow); n+float64(len(slices.Compact(slow))) < late || !p.excuses.Take(p.t, slow, err, slow...) {
				return err
			}
		}
		return nil
	})
}

func proxyScenarios(t *testing.T, o rigOptions) {
	o.memory = paperMemory
	o.nri.DisableNRI = true
	o.nri.Handlers = foreignHandlers
	r := newProxyRig(t, o)
	early, bursts := 0.0, 0
	for _, s := range r.fitting() {
		t.Run(s.Name, func(t *testing.T) {
			r := r.subProxy(t)
			r.freshRun()
			r.prepare(&s)
			r.realDevices(s.Devices)
			if r.driver != kubelet.Systemd { // of which holds waits for the check for drift
				r.extra = onlyEvents() // the request and the start are what has them written
			}
			r.begin(r.proxyConfig(&s, nil))
			pods := r.create(s.Pods)
			wants := s.Wants(r.version, r.driver == kubelet.Systemd)
			r.settle(&s, pods, wants)
			if r.driver == kubelet.Systemd {
				r.reload()
				r.holds(time.Second, &s, pods, wants)
			}
			r.stamped(&s, pods)
			r.measured(pods, wants)
			for _, w := range wants {
				if w.Container != "" && w.File == "cpu.cfs_burst_us" && w.Value != "0" {
					bursts++
				}
			}
			early += r.proxyMetric("koord_rt_cri_early_writes_total", `knob="cpu.burst"`)
			r.remove(pods)
			r.noPodGroups()
			r.end(syscall.SIGTERM)
			if _, err := os.Lstat(r.socket); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Error(err)
			}
		})
	}
	t.Logf("%v bursts stood before the start was told, of %d that are cgroup v1's", early, bursts)
	if (bursts > 0) != (early > 0) {
		t.Errorf("%v bursts stood before the start was told, of %d that are cgroup v1's", early, bursts)
	}
}
