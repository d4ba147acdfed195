// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package docker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	engine "github.com/koord-rt/koord-rt/adapt/docker"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/docker"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/listen"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	lab "github.com/koord-rt/koord-rt/test/lab/docker"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

const secret = "hunter2-4711"

// planner is a Handler with one plan for every container, carried into requests as the real one does.
type planner struct {
	mu     sync.Mutex
	plan   plan.Plan
	rest   plan.Plan // of the last creation
	refuse string    // container name that is refused
	disks  map[string]string
	calls  []string
	last   *docker.Call // of After
}

func (p *planner) want(settings plan.Plan, refuse string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan, p.refuse = settings, refuse
}

func (p *planner) Before(_ context.Context, c *docker.Call) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.Sandbox() {
		return nil, nil
	}
	if c.Container.Name == p.refuse {
		return nil, &docker.Refusal{Err: errors.New("pod asked to fail closed")}
	}
	view := &node.View{Generation: 7}
	view.Kernel.Disks = p.disks
	switch {
	case c.Create != nil:
		body, rest, err := c.Create.Apply(view, p.plan, c.Container, mark.By{Program: "koord-runtime-proxy", Version: "test"})
		p.rest = rest
		return body, err
	case c.Update != nil:
		body, _, err := c.Update.Apply(view, p.plan, c.Current)
		return body, err
	}
	return nil, nil
}

func (p *planner) After(_ context.Context, c *docker.Call, o docker.Outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := "sandbox"
	if !c.Sandbox() {
		name = c.Container.Name
	}
	p.calls = append(p.calls, fmt.Sprintf("%s %s of %s: %d", c.Verb, name, c.Pod.FullName(), o.Status))
	p.last = c
}

func (p *planner) snapshot() (calls []string, last *docker.Call, rest plan.Plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls, p.calls = p.calls, nil
	return calls, p.last, p.rest
}

// syncBuffer is a log that several goroutines write.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// rig is a daemon with a proxy in front.
type rig struct {
	*lab.Daemon
	socket string // the proxy's
	h      *planner
	log    *syncBuffer
	stop   func() // ends the proxy
}

func newRig(t *testing.T) *rig {
	t.Helper()
	d, err := lab.Start(t.Context(), lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &rig{Daemon: d, socket: filepath.Join(d.Dir, "proxy.sock"), h: &planner{}, log: &syncBuffer{}}
	r.startProxy(t)
	return r
}

func (r *rig) startProxy(t *testing.T) {
	t.Helper()
	p, err := docker.New(docker.Options{
		Backend: r.Socket, Handler: r.h, DecisionTimeout: time.Minute, // a starved daemon takes its time
		Log:     slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Observe: func(n docker.Note) { fmt.Fprintf(r.log, "%+v\n", n) },
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := listen.Unix(r.socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Serve(ctx, l) }()
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(r.stop)
}

// run gives the client's output through a socket.
func (r *rig) run(t *testing.T, socket string, stdin io.Reader, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := r.Docker(ctx, socket, stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// proxied is run through the proxy.
func (r *rig) proxied(t *testing.T, args ...string) string {
	t.Helper()
	return r.run(t, r.socket, nil, args...)
}

func container(k plan.Knob, v plan.Value) plan.Setting {
	return plan.Setting{Target: plan.Target{Level: plan.LevelContainer}, Knob: k, Value: v, Owner: protocol.FeatureBatch, Reason: "lab"}
}

// throttle adds a limit for one of the machine's disks to the plan and returns its number.
func (r *rig) throttle(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("/sys/block/*/dev")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name := filepath.Base(filepath.Dir(f))
		_, err := os.Stat("/dev/" + name)
		number, err2 := os.ReadFile(f)
		if err != nil || err2 != nil {
			continue
		}
		device := strings.TrimSpace(string(number))
		r.h.mu.Lock()
		defer r.h.mu.Unlock()
		r.h.disks = map[string]string{name: device}
		limit := container(plan.IOReadBPS, plan.Int(1<<20))
		limit.Key = device
		r.h.plan = append(r.h.plan, limit)
		return device
	}
	t.Fatal("this machine has no block device with a node in /dev")
	return ""
}

// wantFile compares one control file of a container: v1 and v2 are "controller/file=value".
func wantFile(t *testing.T, dir, v1, v2 string) {
	t.Helper()
	tree, err := cgroups.Detect()
	if err != nil {
		t.Fatal(err)
	}
	spec, root := v2, tree.Unified
	if !tree.V2() {
		spec = v1
		controller, _, _ := strings.Cut(spec, "/")
		root = tree.Controllers[controller]
	}
	_, spec, _ = strings.Cut(spec, "/")
	file, want, _ := strings.Cut(spec, "=")
	if got, err := cgroups.Read(filepath.Join(root, dir), file); err != nil || got != want {
		t.Errorf("%s of %s is %q, %v; want %s", file, dir, got, err, want)
	}
}

// TestDockerHostDecides: what the handler plans for a pod's container is in the kernel when it runs, survives an update and
// a restart of the proxy, and everything is told to the handler.
func TestDockerHostDecides(t *testing.T) {
	r := newRig(t)
	r.h.want(plan.Plan{
		container(plan.CPUShares, plan.Int(300)), container(plan.CPUQuota, plan.Int(60000)), container(plan.CPUSetCPUs, plan.Text("0")),
		container(plan.MemoryLimit, plan.Int(64<<20)), container(plan.OOMScoreAdj, plan.Int(900)), container(plan.MemoryHigh, plan.Int(32<<20)),
	}, "closed")
	disk := r.throttle(t)
	parent := "/" + r.Cgroup + "/kubepods/besteffort/pod11111111-2222-3333-4444-555555555555"
	pod := func(kind string, more ...string) []string {
		return append([]string{"create", "--network", "none", "--cgroup-parent", parent, "--label", engine.LabelType + "=" + kind,
			"--label", engine.LabelPodName + "=web", "--label", engine.LabelPodNamespace + "=default", "--label", engine.LabelPodUID + "=11111111-2222-3333-4444-555555555555"}, more...)
	}
	sandbox := r.proxied(t, pod(engine.TypeSandbox, "--name", "k8s_POD_web", "--label", "koordinator.sh/qosClass=BE",
		"--label", "annotation.node.koordinator.sh/x=y", parts.ImageRef)...)
	r.proxied(t, "start", sandbox)
	id := r.proxied(t, pod(engine.TypeContainer, "--name", "k8s_app_web", "--label", engine.LabelSandboxID+"="+sandbox, "--label", engine.LabelContainerName+"=app",
		"--cpu-shares", "2", "--memory", "32m", "--memory-swap", "32m", "--env", "PASSWORD="+secret, parts.ImageRef)...)
	r.proxied(t, "start", id)
	calls, last, rest := r.h.snapshot()
	want := "create sandbox of default/web: 201,start sandbox of default/web: 204,create app of default/web: 201,start app of default/web: 204"
	if got := strings.Join(calls, ","); got != want {
		t.Errorf("the handler was told %s", got)
	}
	if len(rest) != 1 || rest[0].Knob != plan.MemoryHigh {
		t.Errorf("left for after the start: %v", rest)
	}
	dir := parent + "/" + id
	if last.ID != id || last.Pod.ID != sandbox || last.Pod.Class() != protocol.QoSBE || last.Pod.Cgroup != parent || last.Container.Cgroup != dir || last.Container.PID == 0 {
		t.Fatalf("after the start: %+v of %+v", last.Container, last.Pod)
	}
	if base := last.Container.Base; base.Shares.V != 2 || base.MemoryLimit.V != 32<<20 || base.Quota.Set || base.CPUs != "" {
		t.Errorf("base %+v", base)
	}
	wantFile(t, dir, "cpu/cpu.shares=300", "/cpu.weight=12")
	wantFile(t, dir, "cpu/cpu.cfs_quota_us=60000", "/cpu.max=60000 100000")
	wantFile(t, dir, "cpuset/cpuset.cpus=0", "/cpuset.cpus=0")
	wantFile(t, dir, "memory/memory.limit_in_bytes=67108864", "/memory.max=67108864")
	wantFile(t, dir, "blkio/blkio.throttle.read_bps_device="+disk+" 1048576", "/io.max="+disk+" rbps=1048576 wbps=max riops=max wiops=max")
	if score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", last.Container.PID)); err != nil || strings.TrimSpace(string(score)) != "900" {
		t.Errorf("oom_score_adj %s, %v", score, err)
	}
	if got := r.proxied(t, "exec", id, "sh", "-c", "echo $PASSWORD"); got != secret {
		t.Errorf("the variable is %q", got)
	}
	checkUpdate(t, r, id, dir)
	checkEnd(t, r, id, sandbox, pod)
	if strings.Contains(r.log.String(), secret) {
		t.Error("a secret is in the log")
	}
}

func checkUpdate(t *testing.T, r *rig, id, dir string) {
	t.Helper()
	r.stop() // the proxy keeps nothing: the next one knows all it needs
	r.startProxy(t)
	r.h.want(plan.Plan{container(plan.CPUQuota, plan.Int(70000)), container(plan.MemoryLimit, plan.Int(128<<20))}, "closed")
	r.proxied(t, "update", "--cpu-shares", "500", id)
	wantFile(t, dir, "cpu/cpu.shares=500", "/cpu.weight=20")
	wantFile(t, dir, "cpu/cpu.cfs_quota_us=70000", "/cpu.max=70000 100000")
	wantFile(t, dir, "cpuset/cpuset.cpus=0", "/cpuset.cpus=0")
	wantFile(t, dir, "memory/memory.limit_in_bytes=134217728", "/memory.max=134217728")
	calls, last, _ := r.h.snapshot()
	if len(calls) != 1 || calls[0] != "update app of default/web: 200" || last.Container.Base.Shares.V != 500 || last.Container.PID == 0 {
		t.Errorf("after the update: %v, %+v", calls, last.Container)
	}
}

func checkEnd(t *testing.T, r *rig, id, sandbox string, pod func(kind string, more ...string) []string) {
	t.Helper()
	refused := exitStatus(t, r, r.socket, pod(engine.TypeContainer, "--label", engine.LabelSandboxID+"="+sandbox, "--label", engine.LabelContainerName+"=closed", parts.ImageRef)...)
	if !strings.Contains(refused, "Error response from daemon: pod asked to fail closed") {
		t.Errorf("a refused creation shows %s", refused)
	}
	p, err := docker.New(docker.Options{Backend: r.Socket, Handler: r.h})
	if err != nil {
		t.Fatal(err)
	}
	if list, unread, err := p.Backend().List(t.Context()); err != nil || len(list) != 2 || len(unread) > 0 {
		t.Errorf("the daemon lists %d containers of Kubernetes, %v", len(list), err)
	}
	r.proxied(t, "stop", "--time", "1", id)
	r.proxied(t, "rm", id)
	r.proxied(t, "kill", sandbox)
	r.proxied(t, "rm", "--force", sandbox)
	calls, _, _ := r.h.snapshot()
	want := "stop app of default/web: 204,remove app of default/web: 204,kill sandbox of default/web: 204,remove sandbox of default/web: 204"
	if got := strings.Join(calls, ","); got != want {
		t.Errorf("the handler was told %s", got)
	}
}

// TestDockerHostBackendRestarts: a daemon that is away is told as Docker clients understand it, and one that has come back
// is used without a restart of the proxy, its containers still running.
func TestDockerHostBackendRestarts(t *testing.T) {
	r := newRig(t)
	id := r.proxied(t, "run", "--detach", "--network", "none", parts.ImageRef)
	line, end := follow(t, r, t.Context(), r.socket, "events")
	defer end()
	if err := r.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := line(); err == nil {
		t.Error("the event stream goes on without a daemon")
	}
	for _, args := range [][]string{{"ps"}, {"attach", id}, {"create", "--network", "none", parts.ImageRef}} {
		if got := exitStatus(t, r, r.socket, args...); !strings.Contains(got, "does not answer") {
			t.Errorf("docker %v without a daemon: %s", args, got)
		}
	}
	if err := r.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := r.proxied(t, "ps", "--quiet", "--no-trunc"); got != id {
		t.Errorf("ps shows %q, want %s", got, id)
	}
	if got := r.run(t, r.socket, strings.NewReader("back"), "exec", "-i", id, "cat"); got != "back" {
		t.Errorf("exec shows %q", got)
	}
}
