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
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/kernel/proc"
)

// classStrategy switches on what a node with LS and BE pods uses: burst, identity, memory QoS.
const classStrategy = `
cpuBurstStrategy: {policy: auto, cpuBurstPercent: 1000}
resourceQOSStrategy:
  lsClass: {cpuQOS: {enable: true}, memoryQOS: {enable: true, minLimitPercent: 20, lowLimitPercent: 30, throttlingPercent: 90}}
  beClass: {cpuQOS: {enable: true}, memoryQOS: {enable: true, throttlingPercent: 80}}
`

// process is a plugin that runs: koord-nri or the one that does nothing.
type process struct {
	name    string
	cmd     *exec.Cmd
	ready   func() error // nil when synchronised
	exited  chan struct{}
	log     string
	run     string // koord-nri's runDir, on tmpfs
	metrics string // its metrics socket
	bare    string // where the bare plugin writes what its work took
	stopped bool
}

// plainIndex is koord-nri's place among NRI plugins, and noop's where it is alone.
const plainIndex = "05"

// startPlugin starts the named plugin on r and waits until it says that it is synchronised. index is noop's place.
func (b *bench) startPlugin(ctx context.Context, r *rig, name, index string) (*process, error) {
	p, err := b.launch(ctx, r, name, index)
	if err != nil {
		return nil, err
	}
	return p, p.wait(ctx)
}

// launch starts the named plugin.
func (b *bench) launch(ctx context.Context, r *rig, name, index string) (*process, error) {
	dir, err := os.MkdirTemp(r.host.Dir, name)
	if err != nil {
		return nil, fmt.Errorf("create plugin folder: %w", err)
	}
	p := &process{name: name, exited: make(chan struct{}), log: filepath.Join(dir, "log")}
	if name != "ours" {
		err = b.prepareNoop(ctx, r, p, dir, index)
	} else {
		err = b.prepareOurs(r, p, dir)
	}
	if err != nil {
		return nil, err
	}
	p.cmd = b.onOwnCPU(p.cmd)
	if err := p.start(); err != nil {
		return nil, err
	}
	r.plugins = append(r.plugins, p)
	return p, nil
}

// wait until the plugin is synchronised, as long as an emulated machine may need. koord-nri tells by its status file, which it writes
// every few seconds.
func (p *process) wait(ctx context.Context) error {
	err := eventually(ctx, time.Minute, 10*time.Millisecond, func() error {
		select {
		case <-p.exited:
			return errors.New("it has ended")
		default:
			return p.ready()
		}
	})
	if err != nil {
		return fmt.Errorf("start %s: %w; end of its log:\n%s", p.name, err, p.tail())
	}
	return nil
}

func (b *bench) prepareNoop(ctx context.Context, r *rig, p *process, dir, index string) error {
	if err := b.buildNoop(ctx); err != nil {
		return err
	}
	ready := filepath.Join(dir, "ready")
	p.cmd = exec.Command(b.noop, "-socket", r.host.NRISocket, "-ready", ready, "-nice", strconv.Itoa(b.o.noopNice), "-index", index,
		"-realtime="+strconv.FormatBool(b.o.realTime && p.name != sharer))
	if p.name == "stamp" {
		p.cmd.Args = append(p.cmd.Args, "-stamp")
	}
	if p.name == "bare" || p.name == "must" {
		var err error
		if p.run, err = runDir(); err != nil {
			return err
		}
		p.bare = filepath.Join(dir, "took")
		p.cmd.Args = append(p.cmd.Args, "-bare", p.bare, "-ledger", filepath.Join(p.run, "ledger"))
	}
	switch p.name {
	case "bare":
		p.cmd.Args = append(p.cmd.Args, "-work", bareWork.String(), "-stamp")
	case "must":
		p.cmd.Args = append(p.cmd.Args, "-alone")
	}
	p.ready = func() error {
		_, err := os.Stat(ready)
		return err
	}
	return nil
}

// buildNoop compiles the plugin that does nothing.
func (b *bench) buildNoop(ctx context.Context) error {
	if b.noop != "" {
		return nil
	}
	var err error
	b.noop, err = b.build(ctx, "noop", "./test/bench/noop")
	return err
}

// build compiles a program of the benchmarks as koord-nri is compiled.
func (b *bench) build(ctx context.Context, name, source string) (string, error) {
	if b.dir == "" {
		var err error
		if b.dir, err = os.MkdirTemp("", "koord-bench"); err != nil {
			return "", fmt.Errorf("create build folder: %w", err)
		}
	}
	out := filepath.Join(b.dir, name)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", out, source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", name, err, text)
	}
	return out, nil
}

// prepareOurs writes koord-nri's configuration with empty run and state folders.
func (b *bench) prepareOurs(r *rig, p *process, dir string) error {
	var err error
	if p.run, err = runDir(); err != nil {
		return err
	}
	p.metrics = filepath.Join(p.run, "metrics.sock")
	state, path := filepath.Join(dir, "state"), filepath.Join(dir, "nri.yaml")
	if err := os.MkdirAll(state, 0o700); err != nil {
		return fmt.Errorf("create plugin folder: %w", err)
	}
	var spec any
	if err := yaml.Unmarshal([]byte(classStrategy), &spec); err != nil {
		return fmt.Errorf("parse strategy: %w", err)
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "koord-rt.dev/v1alpha1", "kind": "NRIConfig",
		"socket": r.host.NRISocket, "runDir": p.run, "stateDir": state, "strategyFile": filepath.Join(dir, "none.yaml"),
		"host":     map[string]any{"kubepodsRoot": "/" + r.host.Cgroup, "cdiDirs": []string{r.host.CDI}, "criEndpoint": "unix://" + r.host.Socket},
		"metrics":  map[string]any{"address": "unix:" + p.metrics},
		"strategy": spec, "realTime": b.o.realTime,
	})
	if err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	p.cmd = exec.Command(filepath.Join(b.o.bin, "koord-nri"), "--config", path)
	p.ready = func() error {
		_, err := p.lastSync()
		return err
	}
	return nil
}

// noteScheduling keeps how the kernel schedules a plugin: RR is real time, SHARED by weight.
func noteScheduling(r *report, p *process) error {
	pid := p.cmd.Process.Pid
	policy, err := proc.FS("/proc").StatPolicy(pid)
	if err != nil {
		return err
	}
	up, err := unix.Getpriority(unix.PRIO_PROCESS, pid)
	if err != nil {
		return fmt.Errorf("read nice value of %s: %w", p.name, err)
	}
	class := map[int]string{proc.SchedRR: "RR", proc.SchedNormal: "SHARED"}[policy]
	r.note("%s runs %s (policy %d), nice %d", p.name, class, policy, 20-up) // the system call has 20 minus it
	return nil
}

// runDir makes a run folder on tmpfs, where /run lies on every node that runs systemd: the ledger is written inside
// handlers, and a disk's filesystem would be measured with them. rig.close removes it.
func runDir() (string, error) {
	for _, base := range []string{"/run", "/dev/shm"} {
		var st unix.Statfs_t
		if err := unix.Statfs(base, &st); err != nil || st.Type != unix.TMPFS_MAGIC {
			continue
		}
		dir, err := os.MkdirTemp(base, "koord-bench")
		if err != nil {
			return "", fmt.Errorf("create run folder: %w", err)
		}
		return dir, nil
	}
	return "", errors.New("create run folder: neither /run nor /dev/shm is a tmpfs")
}

// lastSync is when koord-nri took in the runtime's list, from its status file.
func (p *process) lastSync() (time.Time, error) {
	entries, err := status.ReadAll(p.run, "/proc")
	if err != nil {
		return time.Time{}, err
	}
	for _, e := range entries {
		if e.Status.PID == p.cmd.Process.Pid && !e.Status.ConnectedSince.IsZero() && !e.Status.LastSync.IsZero() {
			return e.Status.LastSync, nil
		}
	}
	return time.Time{}, errors.New("it is not connected yet")
}

// start runs the process in a group of its own, so that an interrupt from the terminal leaves it to stop.
func (p *process) start() error {
	f, err := os.Create(p.log)
	if err != nil {
		return fmt.Errorf("create log: %w", err)
	}
	defer f.Close()
	p.cmd.Stdout, p.cmd.Stderr = f, f
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s (make build first): %w", p.name, err)
	}
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait() // how it ended is in its log
	}()
	return nil
}

// stop ends the process; a second call does nothing.
func (p *process) stop() error {
	if p.stopped {
		return nil
	}
	p.stopped = true
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	select {
	case <-p.exited:
		return nil
	case <-time.After(10 * time.Second):
	}
	_ = p.cmd.Process.Signal(syscall.SIGQUIT) // a Go program says what its goroutines do
	select {
	case <-p.exited:
	case <-time.After(5 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
	return fmt.Errorf("%s did not end within 10 s of SIGTERM; end of its log:\n%s", p.name, p.last(32<<10))
}

func (p *process) tail() string { return p.last(3000) }

// last is the end of the log, of so many bytes at most.
func (p *process) last(n int) string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-n):])
}

// ticks is the processor time used so far, in 1/100 s.
func (p *process) ticks() (int, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("read processor time: %w", err)
	}
	own, _, err := statTicks(string(data))
	if err != nil {
		return 0, fmt.Errorf("read processor time of %s: %w", p.name, err)
	}
	return own, nil
}

// settle waits the settling time and then until the plugin has been idle for a second, a minute at most.
func (b *bench) settle(ctx context.Context, p *process) error {
	if err := wait(ctx, b.o.settle); err != nil {
		return err
	}
	last, since := -1, time.Now()
	return eventually(ctx, time.Minute, 100*time.Millisecond, func() error {
		now, err := p.ticks()
		if err != nil {
			return err
		}
		if now > last+1 {
			last, since = now, time.Now()
		}
		if time.Since(since) < time.Second {
			return fmt.Errorf("%s is still busy", p.name)
		}
		return nil
	})
}
