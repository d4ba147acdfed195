// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	libcgroups "github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/child"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// nriRuntime is a runtime that has only its side of NRI, in one version of the module, and a node for koord-nri beside it: real
// cgroups with real processes, made as kubelet and runc make them.
type nriRuntime struct {
	*rig
	cdi   string
	stdin io.WriteCloser
	lines chan nriLine
}

// nriLine is one line of the program nriruntime (test/lab/parts).
type nriLine struct {
	Event string          `json:"event"`
	Reply json.RawMessage `json:"reply"`
	Error string          `json:"error"`
}

// nriPod is a pod with one container and its process.
type nriPod struct {
	sandbox   *api.PodSandbox
	container *api.Container
	process   int
}

// newNRINode makes the node; no runtime runs yet.
func newNRINode(t *testing.T) *nriRuntime {
	t.Helper()
	dir := t.TempDir()
	r := &nriRuntime{
		rig: &rig{t: t, log: &syncBuffer{}, run: dir + "/run", state: dir + "/state", config: dir + "/nri.yaml"},
		cdi: dir + "/cdi", lines: make(chan nriLine, 64),
	}
	var err error
	if r.tree, err = cgroups.Detect(); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{r.run, r.state, r.cdi, dir + "/none"} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		r.stop(syscall.SIGTERM)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := cgroups.RemoveAll(ctx, r.root()); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("koord-nri's log:\n%s", tail(r.log.String(), 6000))
		}
	})
	for _, g := range []string{"", "/kubepods", "/kubepods/burstable", "/kubepods/besteffort"} {
		r.group(r.root()+g, &libcgroups.Resources{}, -1)
	}
	return r
}

// root is the cgroup above kubepods.
func (r *nriRuntime) root() string { return fmt.Sprintf("koord-nri-%d", os.Getpid()) }

// group makes or changes a cgroup and moves a process there; -1 is none.
func (r *nriRuntime) group(path string, res *libcgroups.Resources, pid int) {
	r.t.Helper()
	res.SkipDevices, res.SkipFreezeOnSet = true, true
	m, err := manager.New(&libcgroups.Cgroup{Path: "/" + strings.TrimPrefix(path, "/"), Resources: res})
	if err == nil {
		err = m.Apply(pid)
	}
	if err == nil {
		err = m.Set(res)
	}
	if err != nil {
		r.t.Fatalf("make cgroup %s: %v", path, err)
	}
}

// boot starts the runtime's side with one pod that has been there before.
func (r *nriRuntime) boot(part, name, version string, before *nriPod) {
	r.t.Helper()
	cache, err := parts.Open(parts.Options{Progress: os.Stderr})
	if err != nil {
		r.t.Fatal(err)
	}
	program, err := cache.File(r.t.Context(), part, "nriruntime")
	if err != nil {
		r.t.Fatal(err)
	}
	dir := filepath.Dir(r.config)
	cmd := exec.Command(program, name, version, dir+"/nri.sock", dir+"/none")
	cmd.Stderr = r.log
	if r.stdin, err = cmd.StdinPipe(); err != nil {
		r.t.Fatal(err)
	}
	stdout, out, err := os.Pipe() // not the command's own, which is closed when the command has ended, whatever is still to be read
	if err != nil {
		r.t.Fatal(err)
	}
	cmd.Stdout = out
	ended, err := child.Start(cmd, syscall.SIGKILL)
	_ = out.Close() // the command has its own
	if err != nil {
		r.t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(r.lines)
		defer stdout.Close()
		in := bufio.NewScanner(stdout)
		in.Buffer(nil, 1<<20)
		for in.Scan() {
			var l nriLine
			if err := json.Unmarshal(in.Bytes(), &l); err != nil {
				l.Error = err.Error()
			}
			r.lines <- l
		}
	}()
	r.t.Cleanup(func() {
		r.stop(syscall.SIGTERM) // before the runtime: it is not to see its connection break
		_ = r.stdin.Close()     // which ends it
		<-read
		if <-ended; !cmd.ProcessState.Success() {
			r.t.Errorf("the runtime's side of NRI: %s", cmd.ProcessState)
		}
	})
	r.tell(&api.SynchronizeRequest{Pods: []*api.PodSandbox{before.sandbox}, Containers: []*api.Container{before.container}})
	r.next("Synchronize") // of the plugins that a runtime starts itself: none
}

func (r *nriRuntime) tell(m proto.Message) {
	r.t.Helper()
	text, err := protojson.Marshal(m)
	if err == nil {
		_, err = r.stdin.Write(append(text, '\n'))
	}
	if err != nil {
		r.t.Fatalf("tell the runtime's side of NRI: %v", err)
	}
}

// next is the answer to an event.
func (r *nriRuntime) next(event string) nriLine {
	r.t.Helper()
	select {
	case l, ok := <-r.lines:
		if !ok || l.Event != event {
			r.t.Fatalf("the runtime's side of NRI answers %+v (ended: %v), want %s", l, !ok, event)
		}
		return l
	case <-time.After(patience(shortest)):
		r.t.Fatalf("no answer to %s", event)
	}
	return nriLine{}
}

// event lets the plugins see an event; reply may be nil.
func (r *nriRuntime) event(name string, request, reply proto.Message) error {
	r.t.Helper()
	text, err := protojson.Marshal(request)
	if err == nil {
		_, err = fmt.Fprintf(r.stdin, `{"event":%q,"request":%s}`+"\n", name, text)
	}
	if err != nil {
		r.t.Fatalf("%s: %v", name, err)
	}
	l := r.next(name)
	if l.Error != "" {
		return fmt.Errorf("%s: %s", name, l.Error)
	}
	if reply != nil {
		if err := protojson.Unmarshal(l.Reply, reply); err != nil {
			r.t.Fatalf("%s: %v in %s", name, err, l.Reply)
		}
	}
	return nil
}

// must fails the test when an event ends with an error.
func (r *nriRuntime) must(name string, request, reply proto.Message) {
	r.t.Helper()
	if err := r.event(name, request, reply); err != nil {
		r.t.Fatal(err)
	}
}

// made makes a pod's cgroup with the kubelet's values and says how runtime and kubelet describe it.
func (r *nriRuntime) made(class, name string, labels, annotations map[string]string, shares uint64, quota, memory int64) *nriPod {
	r.t.Helper()
	parent := "/" + filepath.Join(r.root(), "kubepods", class, "pod"+uid(name))
	r.group(parent, &libcgroups.Resources{CpuShares: shares, CpuWeight: libcgroups.ConvertCPUSharesToCgroupV2Value(shares), CpuQuota: quota, CpuPeriod: 100000, Memory: memory}, -1)
	asked := func() *api.LinuxResources {
		return &api.LinuxResources{
			Cpu:    &api.LinuxCPU{Shares: api.UInt64(shares), Quota: api.Int64(quota), Period: api.UInt64(uint64(100000))},
			Memory: &api.LinuxMemory{Limit: api.Int64(memory)},
		}
	}
	id := fmt.Sprintf("%064x", fnvOf(name))
	score := 1000
	return &nriPod{
		sandbox: &api.PodSandbox{
			Id: "sandbox-" + name, Name: name, Uid: uid(name), Namespace: "default", Labels: labels, Annotations: annotations,
			Linux: &api.LinuxPodSandbox{CgroupParent: parent, CgroupsPath: parent + "/sandbox-" + name, PodResources: asked()},
		},
		container: &api.Container{
			Id: id, PodSandboxId: "sandbox-" + name, Name: "main", State: api.ContainerState_CONTAINER_CREATED,
			Linux: &api.LinuxContainer{CgroupsPath: parent + "/" + id, Resources: asked(), OomScoreAdj: api.Int(score)},
		},
	}
}

// runc makes the container by its spec: cgroup, process, and what an adjustment says of them.
func (r *nriRuntime) runc(p *nriPod, adj *api.ContainerAdjustment) {
	r.t.Helper()
	cmd := exec.Command("sleep", "600")
	ended, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	p.process = cmd.Process.Pid
	spec, change := p.container.Linux.Resources, adj.GetLinux().GetResources()
	if v := change.GetCpu().GetShares(); v != nil {
		spec.Cpu.Shares = v
	}
	if v := change.GetCpu().GetQuota(); v != nil {
		spec.Cpu.Quota = v
	}
	if v := change.GetMemory().GetLimit(); v != nil {
		spec.Memory.Limit = v
	}
	shares := spec.Cpu.Shares.GetValue()
	r.group(p.container.Linux.CgroupsPath, &libcgroups.Resources{
		CpuShares: shares, CpuWeight: libcgroups.ConvertCPUSharesToCgroupV2Value(shares), CpuQuota: spec.Cpu.Quota.GetValue(), CpuPeriod: 100000,
		Memory: spec.Memory.Limit.GetValue(), CpusetCpus: change.GetCpu().GetCpus(), CpusetMems: change.GetCpu().GetMems(), Unified: change.GetUnified(),
	}, p.process)
	if adj.GetLinux().GetScheduler() != nil {
		if err := unix.SchedSetAttr(p.process, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0); err != nil {
			r.t.Fatal(err)
		}
	}
	if score := adj.GetLinux().GetOomScoreAdj(); score != nil {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", p.process), fmt.Append(nil, score.Value), 0); err != nil {
			r.t.Fatal(err)
		}
	}
}
