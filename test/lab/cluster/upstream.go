// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/koord-rt/koord-rt/test/lab"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// UpstreamOptions of upstream's koordlet.
type UpstreamOptions struct {
	NRISocket string   // optional: connect its NRI plugin there; default no NRI, only the hook server
	Gates     string   // optional: value of its --feature-gates
	Args      []string // optional: more flags, after ours

	ReportSeconds int // optional: report interval of NodeMetric, default 60
}

// Upstream is upstream's koordlet on a node of the cluster: a peer for benchmarks and
// the hook server behind our proxy.
type Upstream struct {
	HookDir    string // folder with koordlet.json: what a runtime proxy reads
	HookSocket string // RuntimeHookService
	Metrics    string // URL
	Log        string

	dir     string
	program string
	env     []string
	args    []string
	process *process
}

// StartUpstream applies upstream's resource definitions, starts its koordlet for the node and waits
// until its hook server is registered; it waits for the kubelet to list a pod, so one must run. It sees the control groups of the node's root only: its cgroup
// root is a folder of links into it.
func (c *Cluster) StartUpstream(ctx context.Context, k *Kubelet, o UpstreamOptions) (*Upstream, error) {
	part, err := c.cache.Get(ctx, parts.UpstreamKoordlet)
	if err != nil {
		return nil, err
	}
	if err := c.ApplyFolder(ctx, filepath.Join(part, "crds")); err != nil {
		return nil, err
	}
	if err := c.makeUpstreamObjects(ctx, k.Node, o.ReportSeconds); err != nil {
		return nil, err
	}
	ports, err := lab.FreePorts("127.0.0.1", 1)
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))
	u := &Upstream{dir: c.file("upstream-" + k.Node), Metrics: "http://" + address + "/metrics"}
	u.HookDir, u.HookSocket, u.Log = filepath.Join(u.dir, "hookserver.d"), filepath.Join(u.dir, "hook.sock"), c.file("upstream-"+k.Node+".log")
	if err := u.prepare(k); err != nil {
		return nil, errors.Join(err, u.Close())
	}
	config, err := c.Kubeconfig("upstream-koordlet", "system:masters")
	if err != nil {
		return nil, errors.Join(err, u.Close())
	}
	u.program, u.env = filepath.Join(part, "koordlet"), []string{"NODE_NAME=" + k.Node}
	u.args = append(u.flags(config, address, o), o.Args...)
	if err := u.Start(ctx); err != nil {
		return nil, errors.Join(err, u.Close())
	}
	return u, nil
}

// Start starts it again after Kill, with more flags, and waits until its hook server answers.
func (u *Upstream) Start(ctx context.Context, more ...string) (err error) {
	if u.process, err = startProcessEnv(u.Log, u.env, u.program, slices.Concat(u.args, more)...); err != nil {
		return err
	}
	ready, cancel := u.process.alive(ctx, 3*time.Minute)
	defer cancel()
	err = poll(ready, "upstream's hook server", func(ctx context.Context) error {
		if _, err := os.Stat(u.Registration()); err != nil {
			return err
		}
		conn, err := new(net.Dialer).DialContext(ctx, "unix", u.HookSocket)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	if err != nil {
		return u.process.failed(err)
	}
	return nil
}

// Registration is the file by which runtime proxies find its hook server.
func (u *Upstream) Registration() string { return filepath.Join(u.HookDir, "koordlet.json") }

// makeUpstreamObjects makes what koord-manager would: without a NodeSLO the collectors never say that they are
// ready, and of a NodeMetric the koordlet fills only the status. Objects of the test's own are kept.
func (c *Cluster) makeUpstreamObjects(ctx context.Context, node string, reportSeconds int) error {
	if reportSeconds == 0 {
		reportSeconds = 60
	}
	policy := map[string]any{"aggregateDurationSeconds": 300, "reportIntervalSeconds": reportSeconds}
	for _, o := range []struct {
		plural, kind string
		spec         map[string]any
	}{{"nodeslos", "NodeSLO", map[string]any{}}, {"nodemetrics", "NodeMetric", map[string]any{"metricCollectPolicy": policy}}} {
		const version = "slo.koordinator.sh/v1alpha1"
		object := Object{"apiVersion": version, "kind": o.kind, "metadata": map[string]any{"name": node}, "spec": o.spec}
		if _, err := c.admin.Create(ctx, versionPath(version)+"/"+o.plural, object); err != nil && !Refused(err, "AlreadyExists") {
			return fmt.Errorf("make %s: %w", o.kind, err)
		}
	}
	return nil
}

func (u *Upstream) flags(kubeconfig, address string, o UpstreamOptions) []string {
	args := []string{
		"-kubeconfig=" + kubeconfig, "-addr=" + address, "-v=4", "-logtostderr=true",
		"-cgroup-root-dir=" + u.at("cgroup"), "-sys-root-dir=/sys/", "-sys-fs-root-dir=/sys/fs/", "-proc-root-dir=/proc/",
		"-var-run-root-dir=" + u.at("run"), "-run-root-dir=" + u.at("run"), "-var-lib-kubelet-dir=" + u.at("kubelet"),
		"-tsdb-path=" + u.at("tsdb"), "-prediction-checkpoint-filepath=" + u.at("checkpoints"), "-audit-log-dir=" + u.at("audit"),
		"-pod-resources-proxy-path=" + u.at("pod-resources"), "-xpu-device-infos-dir=" + u.at("xpu"),
		"-runtime-hooks-addr=" + u.HookSocket, "-runtime-hooks-host-endpoint=" + u.HookSocket, "-runtime-hooks-config-path=" + u.HookDir,
		"-enable-nri-runtime-hook=" + strconv.FormatBool(o.NRISocket != ""),
	}
	if o.NRISocket != "" {
		args = append(args, "-runtime-hooks-nri-socket-path="+o.NRISocket)
	}
	if o.Gates != "" {
		args = append(args, "-feature-gates="+o.Gates)
	}
	return args
}

func (u *Upstream) at(name string) string { return filepath.Join(u.dir, name) + "/" }

// prepare makes the folders and the links: cgroup/cpu -> /sys/fs/cgroup/cpu/ROOT.
func (u *Upstream) prepare(k *Kubelet) error {
	for _, d := range []string{"cgroup", "run", "kubelet", "tsdb", "checkpoints", "audit", "pod-resources", "xpu", "hookserver.d"} {
		if err := os.MkdirAll(u.at(d), 0o755); err != nil {
			return fmt.Errorf("create folder: %w", err)
		}
	}
	tree, err := cgroups.Detect()
	if err != nil {
		return err
	}
	if tree.V2() {
		if err := os.Remove(u.at("cgroup")); err != nil {
			return fmt.Errorf("link control groups: %w", err)
		}
		return os.Symlink(filepath.Join(tree.Unified, k.CgroupRoot), filepath.Join(u.dir, "cgroup"))
	}
	for controller, mount := range tree.Controllers {
		if err := os.Symlink(filepath.Join(mount, k.CgroupRoot), filepath.Join(u.dir, "cgroup", controller)); err != nil {
			return fmt.Errorf("link control groups: %w", err)
		}
	}
	return nil
}

// Pid of the koordlet, 0 after Close.
func (u *Upstream) Pid() int { return u.process.pid() }

// Kill ends the koordlet at once; its files stay, its registration too.
func (u *Upstream) Kill() error { return u.process.end(syscall.SIGKILL, 20*time.Second) }

// Close ends the koordlet and removes its files; the resource definitions stay.
func (u *Upstream) Close() error {
	err := u.process.end(syscall.SIGTERM, 20*time.Second)
	u.process = nil
	if err := errors.Join(err, os.RemoveAll(u.dir)); err != nil {
		return fmt.Errorf("close upstream's koordlet: %w", err)
	}
	return nil
}

// ApplyFolder applies every .yaml of a folder as the administrator and waits until the resource
// definitions among them are served.
func (c *Cluster) ApplyFolder(ctx context.Context, dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("apply %s: no manifests, %v", dir, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return fmt.Errorf("read manifest: %w", err)
		}
		objects, err := c.admin.Apply(ctx, "lab", true, text)
		if err != nil {
			return fmt.Errorf("apply %s: %w", f, err)
		}
		for _, o := range objects {
			if o.Str("kind") != "CustomResourceDefinition" {
				continue
			}
			path, err := c.admin.Path(ctx, o)
			if err != nil {
				return err
			}
			wait, cancel := context.WithTimeout(ctx, time.Minute)
			_, err = c.admin.Wait(wait, path, o.Str("metadata", "name"), func(o Object) bool { return o.Condition("Established") == "True" })
			cancel()
			if err != nil {
				return err
			}
		}
	}
	return nil
}
