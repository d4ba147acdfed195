// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/test/lab"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/child"
	"github.com/koord-rt/koord-rt/test/lab/gate"
	"github.com/koord-rt/koord-rt/test/lab/host"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
	"github.com/koord-rt/koord-rt/test/lab/parts"
	"github.com/koord-rt/koord-rt/test/lab/verdict"
	"github.com/koord-rt/koord-rt/test/scenario"
)

// bin is where the binaries under test lie; inside a VM the environment says so.
func bin(name string) string {
	if dir := os.Getenv("KOORD_RT_BIN"); dir != "" {
		return filepath.Join(dir, name)
	}
	return filepath.Join("..", "..", "bin", name)
}

// rig is one containerd with a kubelet before it and, when started, koord-nri behind it.
type rig struct {
	t       *testing.T
	host    *host.Host
	kube    *kubelet.Kubelet
	tree    cgroups.Tree
	driver  kubelet.Driver
	crio    bool   // the runtime is CRI-O
	version string // "v1" or "v2"
	run     string // koord-nri's runDir
	state   string
	config  string
	plugin  *exec.Cmd
	exited  <-chan struct{}
	log     *syncBuffer
	memory  int64
	extra   map[string]any
	shipped bool // as in rigOptions
	gated   bool // koord-nri's writes into cgroups pass a gate
	gate    *gate.Gate
	dev     string // stands for /dev, where a scenario brings device nodes
	sys     string // stands for /sys, where it brings RDMA devices

	proxyLog *syncBuffer  // the proxy's, where there is one
	meant    [2]int       // how long both logs were when meantLate was called last
	excuses  *lab.Excuses // what late programs have excused
}

type rigOptions struct {
	containerd string
	driver     kubelet.Driver
	memory     int64
	nri        host.Options
	podNetwork bool // pods have addresses of their own: nri has a CNI network
	shipped    bool // the runtime and koord-nri have the time that they have by default
}

func newRig(t *testing.T, o rigOptions) *rig {
	t.Helper()
	ctx := t.Context()
	ho := o.nri
	ho.Version = o.containerd
	ho.SystemdCgroup = o.driver == kubelet.Systemd
	if !o.shipped {
		ho.RequestTimeout, ho.RegisterTimeout = runtimeLimit, patience(30*time.Second)
	}
	h, err := host.Start(ctx, ho)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, host: h, driver: o.driver, crio: o.containerd == parts.CRIO, memory: o.memory, shipped: o.shipped, log: &syncBuffer{}, excuses: lab.NewExcuses()}
	t.Cleanup(func() {
		if err := r.excuses.Err(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(r.close)
	if r.tree, err = cgroups.Detect(); err != nil {
		t.Fatal(err)
	}
	if r.version = "v1"; r.tree.V2() {
		r.version = "v2"
	}
	if r.kube, err = kubelet.New(ctx, kubelet.Options{CRI: h.CRI(), LogDir: h.Logs, Root: h.Cgroup, Driver: o.driver, MemoryCapacity: o.memory, PodNetwork: o.podNetwork, CRIO: r.crio}); err != nil {
		t.Fatal(err)
	}
	r.freshRun()
	return r
}

// freshRun gives the next koord-nri empty run and state directories.
func (r *rig) freshRun() {
	r.t.Helper()
	dir, err := os.MkdirTemp(r.host.Dir, "koord")
	if err != nil {
		r.t.Fatal(err)
	}
	r.run, r.state, r.config = dir+"/run", dir+"/state", dir+"/nri.yaml"
	// A node that has not met us has none of our resctrl groups; with a new run directory nothing would own the old ones.
	for _, name := range []string{"LSR", "LS", "BE"} {
		if err := os.Remove("/sys/fs/resctrl/" + name); err != nil && !errors.Is(err, os.ErrNotExist) {
			r.t.Errorf("remove an old resctrl group: %v", err)
		}
	}
	for _, d := range []string{r.run, r.state} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) close() {
	ctx, cancel := context.WithTimeout(context.Background(), patience(2*time.Minute))
	defer cancel()
	var errs []error
	if r.kube != nil {
		errs = append(errs, r.kube.Cleanup(ctx))
	}
	r.stop(syscall.SIGTERM)
	errs = append(errs, r.host.Close())
	if err := errors.Join(errs...); err != nil {
		r.t.Errorf("clean up: %v", err)
	}
	if r.t.Failed() {
		r.t.Logf("koord-nri's log:\n%s", tail(r.log.String(), 6000))
	}
}

// base is the part of the configuration that the lab dictates.
func (r *rig) base() map[string]any {
	base := map[string]any{
		"socket": r.host.NRISocket, "runDir": r.run, "stateDir": r.state,
		"strategyFile": filepath.Join(filepath.Dir(r.config), "strategy.yaml"),
		"host": map[string]any{
			"kubepodsRoot": r.root(), "cdiDirs": []string{r.host.CDI}, "criEndpoint": "unix://" + r.host.Socket,
		},
		"metrics":   map[string]any{"address": "unix:" + filepath.Join(r.run, "metrics.sock")},
		"reconnect": map[string]any{"min": "50ms", "max": "500ms"},
	}
	if !r.shipped {
		base["deadline"] = "1900ms" // the longest there is: time runs on while a decision gets no CPU
	}
	if r.dev != "" {
		base["host"].(map[string]any)["dev"] = r.dev
	}
	if r.sys != "" {
		base["host"].(map[string]any)["sys"] = r.sys
	}
	for k, v := range r.extra {
		base[k] = v
	}
	return base
}

// slice is the stem of the lab's slice: the kubelet turns a dash inside a part into an underscore.
func (r *rig) slice() string { return strings.ReplaceAll(r.host.Cgroup, "-", "_") }

// root is the cgroup above kubepods.
func (r *rig) root() string {
	if r.driver == kubelet.Systemd {
		return "/" + r.slice() + ".slice"
	}
	return "/" + r.host.Cgroup
}

// startWith starts koord-nri for a scenario. A whole NodeSLO is the strategy file; in the lane of the proxy it stands in the
// configuration.
func (r *rig) startWith(s *scenario.Scenario) {
	r.t.Helper()
	base := r.base()
	if m := s.Manifest(); m != nil {
		if err := os.WriteFile(base["strategyFile"].(string), m, 0o600); err != nil {
			r.t.Fatal(err)
		}
		s = s.WithoutStrategy()
	}
	text, err := s.NRIConfig(base)
	if err != nil {
		r.t.Fatal(err)
	}
	r.start(text)
}

// startStrategy starts koord-nri with a strategy (a bare NodeSLO spec, may be empty) and further configuration.
func (r *rig) startStrategy(spec string, more map[string]any) {
	r.t.Helper()
	r.start(r.configText(spec, more))
}

// configText is the configuration of startStrategy.
func (r *rig) configText(spec string, more map[string]any) []byte {
	r.t.Helper()
	config := map[string]any{"apiVersion": "koord-rt.dev/v1alpha1", "kind": "NRIConfig"}
	for k, v := range r.base() {
		config[k] = v
	}
	if spec != "" {
		var parsed any
		if err := yaml.Unmarshal([]byte(spec), &parsed); err != nil {
			r.t.Fatal(err)
		}
		config["strategy"] = parsed
	}
	for k, v := range more {
		config[k] = v
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		r.t.Fatal(err)
	}
	return text
}

func (r *rig) start(config []byte) {
	r.t.Helper()
	if err := os.WriteFile(r.config, config, 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.launch()
	r.connected()
}

// launch starts the process on the present configuration without waiting for the runtime.
func (r *rig) launch() {
	r.t.Helper()
	cmd := exec.Command(bin("koord-nri"), "--config", r.config)
	cmd.Stderr, cmd.Stdout = r.log, r.log
	if r.gated {
		g, exited, err := gate.Start(cmd, r.tree.Mounts()...)
		if err != nil {
			r.t.Fatal(err)
		}
		r.plugin, r.gate, r.exited = cmd, g, exited
		return
	}
	exited, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		r.t.Fatal(err)
	}
	r.plugin, r.exited = cmd, exited
}

// connected waits until this koord-nri's status says that it has been synchronised.
func (r *rig) connected() {
	r.t.Helper()
	pid := r.plugin.Process.Pid
	r.eventually(time.Minute, func() error {
		select {
		case <-r.exited:
			r.t.Fatalf("koord-nri ended: %s\n%s", r.plugin.ProcessState, tail(r.log.String(), 3000))
		default:
		}
		entries, err := status.ReadAll(r.run, "/proc")
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.Status.PID == pid && !e.Status.ConnectedSince.IsZero() && !e.Status.LastSync.IsZero() {
				return nil
			}
		}
		return fmt.Errorf("koord-nri (pid %d) is not connected yet", pid)
	})
}

func (r *rig) stop(sig syscall.Signal) {
	if r.plugin == nil {
		return
	}
	_ = r.plugin.Process.Signal(sig) // it may have ended by itself
	limit := patience(shortest)
	select {
	case <-r.exited:
	case <-time.After(limit):
		r.t.Errorf("koord-nri did not end within %s of %s", limit, sig)
		_ = r.plugin.Process.Kill()
		<-r.exited
	}
	r.plugin = nil
}

// emulated tells whether this is a guest of the VM lane.
func emulated() bool { return os.Getenv("KOORD_RT_GUEST") != "" }

// patience stretches a limit in an emulated machine, whose clock runs on while it gets no CPU.
func patience(limit time.Duration) time.Duration {
	if emulated() {
		return 4 * limit
	}
	return limit
}

// rounds is how often a test repeats what it shows: as often as said on a real machine, once in an emulated one, where a pod takes
// seconds. The same moments are met again and again on the host, the guest has to show only that its kernel makes no difference.
func rounds(n int) int {
	if emulated() {
		return 1
	}
	return n
}

// runtimeLimit is how long the lab's runtime waits for a plugin, much longer than containerd's 2 s: a plugin that got no CPU after the end of
// its deadline is not to be dropped. Who shows that one is dropped waits for as long.
const runtimeLimit = 30 * time.Second

// shortest is what eventually waits at least, before patience stretches it: a wait ends when the thing holds, so a long one costs only where it
// fails, and where the CPUs are taken, what needs milliseconds has come after eight seconds and more. A check for drift may come meanwhile:
// onlyEvents is for what it must not stand in for.
const shortest = time.Minute

// onlyEvents is the configuration of a program whose check for drift comes as seldom as it can, after the lifecycle. By default it comes
// within each wait (shortest), and would write what an event ought to have written. It is not for lifecycles that show what nobody tells
// of, or in which a write may fail: there the check is what ends well.
func onlyEvents() map[string]any {
	return map[string]any{"driftInterval": config.MaxDriftInterval.String()}
}

// eventually polls a condition that another process brings about; a limit counts where it is longer than shortest.
func (r *rig) eventually(limit time.Duration, check func() error) {
	r.t.Helper()
	r.promptly(max(limit, shortest), check)
}

// promptly is eventually where the limit is part of what is shown.
func (r *rig) promptly(limit time.Duration, check func() error) {
	r.t.Helper()
	limit = patience(limit)
	deadline := time.Now().Add(limit)
	for {
		begun := time.Now()
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("after %s: %v\nkoord-nri:\n%s", limit, err, tail(r.log.String(), 3000))
		}
		time.Sleep(lab.Pause(time.Since(begun), 20*time.Millisecond))
	}
}

// ctl runs koordctl on this rig's run directory.
func (r *rig) ctl(args ...string) (string, error) {
	var out bytes.Buffer
	cmd := exec.Command(bin("koordctl"), append([]string{"--run-dir", r.run}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// tail is the end of a log, and of a program that Go has ended the reason, which stands above what all goroutines did.
func tail(s string, n int) string {
	if at := verdict.Ended(s); at >= 0 && len(s)-at > n {
		return "…" + s[at:at+n] + "…"
	}
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return strings.TrimSpace(s)
}

// status is the running koord-nri's own.
func (r *rig) status() status.Status {
	r.t.Helper()
	var s status.Status
	r.eventually(0, func() error { // metrics may be served before the first status is written
		entries, err := status.ReadAll(r.run, "/proc")
		if err != nil {
			return err
		}
		for _, e := range entries {
			if r.plugin != nil && e.Status.PID == r.plugin.Process.Pid {
				s = e.Status
				return nil
			}
		}
		return fmt.Errorf("no status of koord-nri in %s", r.run)
	})
	return s
}
