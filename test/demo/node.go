// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build linux

package main

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
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/host"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// startNode builds what is missing and starts containerd, with a kubelet before it that is the lab's.
func (d *demo) startNode(ctx context.Context) error {
	cache, err := parts.Open(parts.Options{Progress: progress{d.screen}})
	if err != nil {
		return err
	}
	if !cached() {
		d.screen.line("The first run builds containerd, runc and crictl from source into %s: a few minutes, once.", cache.Root())
	}
	crictl, err := cache.File(ctx, parts.Crictl, "crictl")
	if err != nil {
		return err
	}
	d.crictl = crictl
	if d.tree, err = cgroups.Detect(); err != nil {
		return err
	}
	if d.host, err = host.Start(ctx, host.Options{Cache: cache}); err != nil {
		return err
	}
	d.dir, d.root = d.host.Dir, d.host.Cgroup
	d.kube, err = kubelet.New(ctx, kubelet.Options{CRI: d.host.CRI(), LogDir: d.host.Logs, Root: d.host.Cgroup})
	return err
}

// progress indents the lab's lines.
type progress struct{ s *screen }

func (p progress) Write(b []byte) (int, error) {
	p.s.line("  %s", p.s.paint(dim, strings.TrimPrefix(strings.TrimSpace(string(b)), "lab: ")))
	return len(b), nil
}

// runDir is koord-nri's, below the lab's folder.
func (d *demo) runDir() string { return filepath.Join(d.dir, "koord", "run") }

func (d *demo) logFile() string { return filepath.Join(d.dir, "koord", "nri.log") }

// logTail is the end of koord-nri's log, for errors.
func (d *demo) logTail() string {
	data, err := os.ReadFile(d.logFile())
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-2000):])
}

// config writes koord-nri's configuration and the strategy file.
func (d *demo) config() (string, error) {
	base := filepath.Join(d.dir, "koord")
	for _, dir := range []string{d.runDir(), filepath.Join(base, "state")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", fmt.Errorf("create folder: %w", err)
		}
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "koord-rt.dev/v1alpha1", "kind": "NRIConfig",
		"socket": d.host.NRISocket, "runDir": d.runDir(), "stateDir": filepath.Join(base, "state"),
		"strategyFile": filepath.Join(base, "strategy.yaml"),
		"host": map[string]any{
			"kubepodsRoot": "/" + d.host.Cgroup, "cdiDirs": []string{d.host.CDI}, "criEndpoint": "unix://" + d.host.Socket,
		},
		"metrics": map[string]any{"address": "unix:" + filepath.Join(d.runDir(), "metrics.sock")},
	})
	if err != nil {
		return "", fmt.Errorf("write configuration: %w", err)
	}
	path := filepath.Join(base, "nri.yaml")
	err = errors.Join(os.WriteFile(filepath.Join(base, "strategy.yaml"), []byte(strategyFile), 0o600), os.WriteFile(path, text, 0o600))
	if err != nil {
		return "", fmt.Errorf("write configuration: %w", err)
	}
	return path, nil
}

// startPlugin starts koord-nri and waits until it is connected and synchronised.
func (d *demo) startPlugin(ctx context.Context) error {
	path, err := d.config()
	if err != nil {
		return err
	}
	log, err := os.Create(d.logFile())
	if err != nil {
		return fmt.Errorf("create log: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(binary("koord-nri"), "--config", path)
	cmd.Stdout, cmd.Stderr = log, log
	// A group of its own: an interrupt from the terminal leaves it to close.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start koord-nri: %w", err)
	}
	d.plugin, d.exited = cmd, make(chan struct{})
	go func() {
		_ = cmd.Wait() // its log tells more than its exit status
		close(d.exited)
	}()
	return poll(ctx, 15*time.Second, func() error {
		select {
		case <-d.exited:
			return fmt.Errorf("koord-nri ended: %s", d.logTail())
		default:
		}
		entries, err := status.ReadAll(d.runDir(), "/proc")
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.Status.PID == cmd.Process.Pid && !e.Status.LastSync.IsZero() {
				return nil
			}
		}
		return errors.New("koord-nri is not connected to containerd yet")
	})
}

func (d *demo) stopPlugin() error {
	if d.plugin == nil {
		return nil
	}
	p := d.plugin.Process
	d.plugin = nil
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop koord-nri: %w", err)
	}
	select {
	case <-d.exited:
		return nil
	case <-time.After(10 * time.Second):
		err := p.Kill()
		<-d.exited
		return errors.Join(errors.New("koord-nri did not end within 10 s of SIGTERM"), err)
	}
}

// poll tries until check succeeds, limit has passed or ctx ends.
func poll(ctx context.Context, limit time.Duration, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// output runs a program and returns its standard output.
func output(ctx context.Context, name string, args ...string) ([]byte, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("run %s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}

// cpus are the CPUs this process may run on, ascending.
func cpus() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("read CPUs: %w", err)
	}
	var out []int
	for i := range len(set) * 64 {
		if set.IsSet(i) {
			out = append(out, i)
		}
	}
	return out, nil
}
