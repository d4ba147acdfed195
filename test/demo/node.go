// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	if !cached(parts.Runc) {
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

// runDir is our daemons', below the lab's folder.
func (d *demo) runDir() string { return filepath.Join(d.dir, "koord", "run") }

func (d *demo) logFile() string { return filepath.Join(d.dir, "koord", "nri.log") }

// config writes a daemon's configuration: what all have in common, and more. It returns the file.
func (d *demo) config(name, kind string, more map[string]any) (string, error) {
	base := filepath.Join(d.dir, "koord")
	for _, dir := range []string{d.runDir(), filepath.Join(base, "state")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", fmt.Errorf("create folder: %w", err)
		}
	}
	doc := map[string]any{
		"apiVersion": "koord-rt.dev/v1alpha1", "kind": kind, "runDir": d.runDir(), "stateDir": filepath.Join(base, "state"),
		"host": map[string]any{
			"kubepodsRoot": "/" + d.host.Cgroup, "cdiDirs": []string{d.host.CDI}, "criEndpoint": "unix://" + d.host.Socket,
		},
		"metrics": map[string]any{"address": "unix:" + d.metrics(name)},
	}
	maps.Copy(doc, more)
	text, err := yaml.Marshal(doc)
	if err != nil {
		return "", fmt.Errorf("write configuration: %w", err)
	}
	return d.file(name+".yaml", string(text))
}

// file writes a file of our own and returns its path.
func (d *demo) file(name, text string) (string, error) {
	path := filepath.Join(d.dir, "koord", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("create folder: %w", err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("write configuration: %w", err)
	}
	return path, nil
}

// metrics is the socket of a daemon's metrics.
func (d *demo) metrics(name string) string { return filepath.Join(d.runDir(), name+"-metrics.sock") }

// startPlugin starts koord-nri and waits until it is connected and synchronised.
func (d *demo) startPlugin(ctx context.Context) error {
	rules, err := d.file("strategy.yaml", strategyFile)
	if err != nil {
		return err
	}
	return d.launchPlugin(ctx, rules)
}

// launchPlugin is startPlugin with the strategy of a file, which may be absent.
func (d *demo) launchPlugin(ctx context.Context, rules string) error {
	config, err := d.config("nri", "NRIConfig", map[string]any{"socket": d.host.NRISocket, "strategyFile": rules})
	if err != nil {
		return err
	}
	if d.plugin, err = launch("koord-nri", d.logFile(), "--config", config); err != nil {
		return err
	}
	return d.plugin.ready(ctx, d.runDir(), func(s *status.Status) bool { return !s.LastSync.IsZero() })
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
