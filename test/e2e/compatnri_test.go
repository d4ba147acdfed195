// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"sigs.k8s.io/yaml"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
	"github.com/koord-rt/koord-rt/test/lab/parts"
	"github.com/koord-rt/koord-rt/test/scenario"
)

// nriVersion is a version of NRI in a runtime that has it, and what koord-nri can do there. For most of them the lab builds no
// containerd, and CRI-O it has none, so the runtime is NRI's own side alone: the same code that they embed.
type nriVersion struct {
	part, runtime, version string
	says                   string // what koord-nri calls it
	cdi, updatePod, sched  bool
	hidesPID               bool // the runtime does not tell a container's process
}

// nriVersions has the newest first: the others are compared with it.
var nriVersions = []nriVersion{
	{part: parts.NRIRuntime012, runtime: "containerd", version: "v2.4.2", says: "0.12", cdi: true, updatePod: true, sched: true},
	{part: parts.NRIRuntime011, runtime: "containerd", version: "v2.2.1", says: "0.11", cdi: true, updatePod: true, sched: true},
	{part: parts.NRIRuntime010, runtime: "containerd", version: "v2.2.0", says: "0.10", cdi: true, updatePod: true},
	{part: parts.NRIRuntime09, runtime: "cri-o", version: "1.32.0", says: "0.9", hidesPID: true},
	{part: parts.NRIRuntime08, runtime: "containerd", version: "v2.1.0", says: "0.8", cdi: true},
}

// TestCompatNRI connects koord-nri to every version of NRI, and lets a container live through all events. What a version cannot
// carry is in force all the same, or features names it.
func TestCompatNRI(t *testing.T) {
	reference := map[string]proto.Message{}
	for _, v := range nriVersions {
		t.Run(v.says, func(t *testing.T) { compatNRI(t, v, reference) })
	}
}

func compatNRI(t *testing.T, v nriVersion, reference map[string]proto.Message) {
	r := newNRINode(t)
	last, rest := cpus()
	before := r.made("burstable", "nri-before", map[string]string{protocol.LabelQoSClass: "LS"}, nil, 204, 80000, 128<<20)
	before.container.Linux.Resources.Cpu.Quota = api.Int64(50000) // so the pod's can be lowered alone, on cgroup v1, too
	r.runc(before, nil)
	before.container.State, before.container.Pid = api.ContainerState_CONTAINER_RUNNING, uint32(before.process)
	r.connect(v, before)
	r.holds(before, append(slices.DeleteFunc(wants("LS", ""), func(w string) bool { return strings.HasPrefix(w, "pod ") }), "main cpuset.cpus=0-"+last))
	r.holds(before, []string{"pod " + burstFile() + "=80000"})

	be := r.madeOf(bePod("nri-be"), "besteffort", 2, 0, 0)
	reply := r.runs(v, be)
	r.holds(be, wants("BE", "0-"+last))
	r.asIn(v, reference, "adjustment of BE", reply.Adjust)
	if got := reply.Adjust.GetLinux().GetScheduler() != nil; got != v.sched {
		t.Errorf("the adjustment has a scheduler: %v, want %v", got, v.sched)
	}

	lsr := r.madeOf(lsrPod("nri-lsr"), "", 1024, 100000, 64<<20)
	r.asIn(v, reference, "adjustment of LSR", r.runs(v, lsr).Adjust)
	r.holds(lsr, wants("LSR", ""))
	for _, p := range []*nriPod{before, be} {
		r.holds(p, []string{"main cpuset.cpus=" + rest})
	}
	r.devices(v)
	r.updates(v, be, reference)
	r.ends(v, be)
	r.detects(v)
	r.resizes(v, before)
}

// connect starts runtime and koord-nri, with a CDI registry and a device node, and waits until the plugin is synchronised.
func (r *nriRuntime) connect(v nriVersion, before *nriPod) {
	r.t.Helper()
	r.boot(v.part, v.runtime, v.version, before)
	spec := `{"cdiVersion":"0.6.0","kind":"nvidia.com/gpu","devices":[{"name":"GPU-lab-1","containerEdits":{"env":["LAB_GPU=one"]}}]}`
	if err := os.WriteFile(filepath.Join(r.cdi, "nvidia.json"), []byte(spec), 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.makeDevices([]scenario.Device{{Path: "/dev/nvidia1", Major: 195, Minor: 1}})
	r.makeVerbs([]scenario.Device{
		{Type: protocol.DeviceRDMA, UUID: "mlx5_0", BusID: "0000:3b:00.0", Path: "/dev/infiniband/uverbs0", Major: 231, Minor: 192},
		{Type: protocol.DeviceRDMA, Index: -1, Path: "/dev/infiniband/rdma_cm", Major: 10, Minor: 58, Control: true},
	})
	var strategy any
	if err := yaml.Unmarshal([]byte(standard), &strategy); err != nil {
		r.t.Fatal(err)
	}
	dir := filepath.Dir(r.config)
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "koord-rt.dev/v1alpha1", "kind": "NRIConfig", "strategy": strategy,
		"socket": dir + "/nri.sock", "runDir": r.run, "stateDir": r.state,
		"host":      map[string]any{"kubepodsRoot": "/" + r.root(), "cdiDirs": []string{r.cdi}, "dev": r.dev, "sys": r.sys, "criEndpoint": "unix://" + dir + "/no-cri.sock"},
		"metrics":   map[string]any{"address": "unix:" + r.run + "/metrics.sock"},
		"reconnect": map[string]any{"min": "50ms", "max": "500ms"},
		"deadline":  "1900ms", // the longest there is, as in newRig's
	})
	if err == nil {
		err = os.WriteFile(r.config, text, 0o600)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.again()
	if l := r.next("Synchronize"); l.Error != "" {
		r.t.Fatalf("synchronize: %s", l.Error)
	}
}

// madeOf makes the cgroup of one of the pods of lifecycle tests.
func (r *nriRuntime) madeOf(p kubelet.Pod, class string, shares uint64, quota, memory int64) *nriPod {
	r.t.Helper()
	return r.made(class, p.Name, p.Labels, p.Annotations, shares, quota, memory)
}

// runs lets a pod's container come to life.
func (r *nriRuntime) runs(v nriVersion, p *nriPod) *api.CreateContainerResponse {
	r.t.Helper()
	r.must("RunPodSandbox", &api.RunPodSandboxRequest{Pod: p.sandbox}, nil)
	reply := &api.CreateContainerResponse{}
	r.must("CreateContainer", &api.CreateContainerRequest{Pod: p.sandbox, Container: p.container}, reply)
	r.runc(p, reply.Adjust)
	if !v.hidesPID {
		p.container.Pid = uint32(p.process)
	}
	r.must("StartContainer", &api.StartContainerRequest{Pod: p.sandbox, Container: p.container}, nil)
	p.container.State = api.ContainerState_CONTAINER_RUNNING
	return reply
}

// holds waits until the kernel holds wanted values, "main FILE=VALUE" or "pod FILE=VALUE"; weights are the business of runc's and
// the kubelet's formula, which scenarios look at.
func (r *nriRuntime) holds(p *nriPod, wants []string) {
	r.t.Helper()
	r.eventually(10*time.Second, func() error {
		for _, w := range wants {
			what, value, _ := strings.Cut(w, "=")
			level, file, _ := strings.Cut(what, " ")
			if file == "cpu.weight" {
				continue
			}
			got, err := r.present(p, level, file)
			if err != nil {
				return err
			}
			if got != value {
				return fmt.Errorf("%s: want %s = %q, the kernel has %q", p.sandbox.Name, what, value, got)
			}
		}
		return nil
	})
}

func (r *nriRuntime) present(p *nriPod, level, file string) (string, error) {
	if strings.HasPrefix(file, "@") {
		return processAttribute(p.process, file)
	}
	return cgroups.Read(r.dir(p, level, file), file)
}

func (r *nriRuntime) dir(p *nriPod, level, file string) string {
	mount := r.tree.Unified
	if !r.tree.V2() {
		mount = r.tree.Controllers[r.controller(file)]
	}
	if level == "pod" {
		return filepath.Join(mount, p.sandbox.Linux.CgroupParent)
	}
	return filepath.Join(mount, p.container.Linux.CgroupsPath)
}

// asIn compares what koord-nri answered with its answer in the newest version, but for what this one has no field for, and for the
// mark, which names the generation and where a value was set.
func (r *nriRuntime) asIn(v nriVersion, reference map[string]proto.Message, what string, m proto.Message) {
	r.t.Helper()
	got := proto.Clone(m)
	if adj, ok := got.(*api.ContainerAdjustment); ok {
		if adj.Annotations[protocol.AnnotationApplied] == "" {
			r.t.Errorf("%s: no mark: %v", what, adj)
		}
		adj.Annotations = nil
		if adj.Linux != nil {
			adj.Linux.Scheduler = nil
		}
	}
	withoutEmpty(got.ProtoReflect())
	if reference[what] == nil {
		if v.says != nriVersions[0].says {
			r.t.Fatalf("%s: run %s, too", what, nriVersions[0].says)
		}
		reference[what] = got
	}
	if !proto.Equal(got, reference[what]) {
		r.t.Errorf("%s:\n%s\nin NRI %s it is\n%s", what, protojson.Format(got), nriVersions[0].says, protojson.Format(reference[what]))
	}
}

// withoutEmpty drops messages that say nothing: versions differ in which of them a runtime's side makes.
func withoutEmpty(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Message() == nil || f.IsMap():
		case f.IsList():
			for i := range v.List().Len() {
				withoutEmpty(v.List().Get(i).Message())
			}
		default:
			withoutEmpty(v.Message())
			if proto.Size(v.Message().Interface()) == 0 {
				m.Clear(f)
			}
		}
		return true
	})
}

// devices: a GPU comes by its CDI name where the runtime applies such, else as a node and a variable; RDMA as nodes.
func (r *nriRuntime) devices(v nriVersion) {
	r.t.Helper()
	gpu := lsPod("nri-gpu")
	gpu.Annotations = map[string]string{protocol.AnnotationDeviceAllocated: `{"gpu":[{"minor":1,"id":"GPU-lab-1","resources":{"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory-ratio":"100"}}]}`}
	adj := r.runs(v, r.madeOf(gpu, "burstable", 204, 50000, 128<<20)).Adjust
	var names, nodes []string
	for _, d := range adj.GetCDIDevices() {
		names = append(names, d.Name)
	}
	for _, d := range adj.GetLinux().GetDevices() {
		nodes = append(nodes, d.Path)
	}
	wantNames, wantNodes := []string{"nvidia.com/gpu=GPU-lab-1"}, []string(nil)
	if !v.cdi {
		wantNames, wantNodes = nil, []string{"/dev/nvidia1"}
	}
	if !slices.Equal(names, wantNames) || !slices.Equal(nodes, wantNodes) {
		r.t.Errorf("CDI devices %q and nodes %q, want %q and %q", names, nodes, wantNames, wantNodes)
	}
	rdma := lsPod("nri-rdma")
	rdma.Annotations = map[string]string{protocol.AnnotationDeviceAllocated: `{"rdma":[{"minor":0,"resources":{"koordinator.sh/rdma":"100"}}]}`}
	var verbs []string
	for _, d := range r.runs(v, r.madeOf(rdma, "burstable", 204, 50000, 128<<20)).Adjust.GetLinux().GetDevices() {
		verbs = append(verbs, fmt.Sprintf("%s %s %d:%d", d.Path, d.Type, d.Major, d.Minor))
	}
	slices.Sort(verbs)
	if want := []string{"/dev/infiniband/rdma_cm c 10:58", "/dev/infiniband/uverbs0 c 231:192"}; !slices.Equal(verbs, want) {
		r.t.Errorf("verbs nodes %q, want %q", verbs, want)
	}
}

// updates: the kubelet writes its own values for a BE container, and the answer has ours.
func (r *nriRuntime) updates(v nriVersion, be *nriPod, reference map[string]proto.Message) {
	r.t.Helper()
	reply := &api.UpdateContainerResponse{}
	asks := &api.LinuxResources{
		Cpu:    &api.LinuxCPU{Shares: api.UInt64(uint64(2)), Quota: api.Int64(-1), Period: api.UInt64(uint64(100000))},
		Memory: &api.LinuxMemory{Limit: api.Int64(1 << 30)},
	}
	r.must("UpdateContainer", &api.UpdateContainerRequest{Pod: be.sandbox, Container: be.container, LinuxResources: asks}, reply)
	r.must("PostUpdateContainer", &api.PostUpdateContainerRequest{Pod: be.sandbox, Container: be.container}, nil)
	if len(reply.Update) != 1 || reply.Update[0].GetLinux().GetResources().GetMemory().GetLimit().GetValue() != 128<<20 {
		r.t.Fatalf("the kubelet's update is answered with %v", reply)
	}
	r.asIn(v, reference, "answer to an update", reply)
}

// resizes: the kubelet lowers a pod's quota below the burst that the pod has. Where NRI tells beforehand the burst has made room,
// else the kernel refuses the quota.
func (r *nriRuntime) resizes(v nriVersion, p *nriPod) {
	r.t.Helper()
	asks := proto.CloneOf(p.sandbox.Linux.PodResources)
	asks.Cpu.Quota = api.Int64(60000)
	told := r.event("UpdatePodSandbox", &api.UpdatePodSandboxRequest{Pod: p.sandbox, LinuxResources: asks}, nil)
	if (told == nil) != v.updatePod {
		r.t.Fatalf("the runtime's side tells of a resize: %v, want %v", told, v.updatePod)
	}
	file, value := "cpu.max", "60000 100000"
	if !r.tree.V2() {
		file, value = "cpu.cfs_quota_us", "60000"
	}
	err := cgroups.Write(r.dir(p, "pod", file), file, value)
	if !v.updatePod {
		// Without the burst the same write is good: it is what the kernel refused.
		r.stop(syscall.SIGTERM)
		more := errors.Join(cgroups.Write(r.dir(p, "pod", file), burstFile(), "0"), cgroups.Write(r.dir(p, "pod", file), file, value))
		if !errors.Is(err, syscall.EINVAL) || more != nil {
			r.t.Errorf("a quota below the burst: %v, want EINVAL, and without the burst: %v: features calls it degraded for nothing", err, more)
		}
		return
	}
	if err != nil {
		r.t.Fatal(err)
	}
	p.sandbox.Linux.PodResources = asks
	r.must("PostUpdatePodSandbox", &api.PostUpdatePodSandboxRequest{Pod: p.sandbox}, nil)
	r.holds(p, []string{"pod " + burstFile() + "=60000", "pod " + file + "=" + value})
}

// burstFile is the kernel's file of a burst.
func burstFile() string {
	if cgroupV2() {
		return "cpu.max.burst"
	}
	return "cpu.cfs_burst_us"
}

// ends lets a pod go.
func (r *nriRuntime) ends(v nriVersion, p *nriPod) {
	r.t.Helper()
	r.must("StopContainer", &api.StopContainerRequest{Pod: p.sandbox, Container: p.container}, nil)
	r.must("RemoveContainer", &api.RemoveContainerRequest{Pod: p.sandbox, Container: p.container}, nil)
	r.must("StopPodSandbox", &api.StopPodSandboxRequest{Pod: p.sandbox}, nil)
	r.must("RemovePodSandbox", &api.RemovePodSandboxRequest{Pod: p.sandbox}, nil)
	events := []string{
		"Configure", "Synchronize", "RunPodSandbox", "CreateContainer", "StartContainer", "UpdateContainer", "PostUpdateContainer",
		"StopContainer", "RemoveContainer", "StopPodSandbox", "RemovePodSandbox",
	}
	m, err := r.metrics()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range events {
		if sum(m, "koord_rt_nri_event_duration_seconds_count", `event="`+e+`"`) == 0 {
			r.t.Errorf("koord-nri has not seen %s: %v", e, slices.Sorted(maps.Keys(m)))
		}
	}
	if m["koord_rt_nri_connected"] != 1 || sum(m, "koord_rt_nri_event_duration_seconds_count", `event="Synchronize"`) != 1 {
		r.t.Error("the runtime's side has dropped the plugin in between")
	}
}

// detects: koord-nri knows where it is, and says what is missing there.
func (r *nriRuntime) detects(v nriVersion) {
	r.t.Helper()
	// The status may still be the one before the runtime told its version.
	r.eventually(20*time.Second, func() error {
		if got := r.status(); got.RuntimeName != v.runtime || got.NRIVersion != v.says {
			return fmt.Errorf("koord-nri takes the runtime for %q with NRI %q, want %s with %s", got.RuntimeName, got.NRIVersion, v.runtime, v.says)
		}
		return nil
	})
	out, err := r.ctl("features")
	text := strings.Join(strings.Fields(out), " ")
	if err != nil {
		r.t.Fatalf("features: %v\n%s", err, out)
	}
	for sentence, want := range map[string]bool{
		"does not apply a scheduler from NRI: it is set at StartContainer": !v.sched,
		"does not apply CDI devices from NRI":                              !v.cdi,
		"has no UpdatePodSandbox event: a pod's burst is lowered only":     !v.updatePod,
	} {
		if strings.Contains(text, sentence) != want {
			r.t.Errorf("features says %q: %v, want %v:\n%s", sentence, !want, want, out)
		}
	}
}
