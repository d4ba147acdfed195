// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package critest_test

import (
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

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/cri"
	"github.com/koord-rt/koord-rt/test/lab/critest"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// onDocker is a kubelet whose runtime is our CRI proxy before cri-dockerd before dockerd.
type onDocker struct {
	t      *testing.T
	proxy  *critest.Proxy
	client *cri.Client
	kube   *kubelet.Kubelet
	tree   cgroups.Tree

	excuses *lab.Excuses // what a late proxy has excused
}

// The two pods, and the kubelet's own values of the BE one.
var (
	batchOnDocker = kubelet.Pod{
		Name: "job", UID: "5c1e0001-0000-4000-8000-000000000011",
		Labels: map[string]string{"koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "koord-batch"},
		Annotations: map[string]string{
			"node.koordinator.sh/extended-resource-spec": `{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"64Mi"},` +
				`"limits":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"128Mi"}}}}`,
		},
		Containers: []kubelet.Container{{Name: "main"}},
	}
	limitedOnDocker = kubelet.Pod{
		Name: "web", UID: "5c1e0001-0000-4000-8000-000000000012", Labels: map[string]string{"koordinator.sh/qosClass": "LS"},
		Containers: []kubelet.Container{{Name: "main", Resources: kubelet.Resources{
			Requests: map[string]kubelet.Quantity{"cpu": "200m", "memory": "64Mi"},
			Limits:   map[string]kubelet.Quantity{"cpu": "500m", "memory": "128Mi"},
		}}},
	}
	nativeOfBE = &runtimeapi.LinuxContainerResources{CpuShares: 2, OomScoreAdj: 1000}
)

var batchKnobs = []knob{
	{"main", "cpu", "cpu.shares=512", "cpu.weight=59"}, {"pod", "cpu", "cpu.shares=512", "cpu.weight=20"},
	{"main", "cpu", "cpu.cfs_quota_us=50000", "cpu.max=50000 100000"}, {"pod", "cpu", "cpu.cfs_quota_us=50000", "cpu.max=50000 100000"},
	{"main", "memory", "memory.limit_in_bytes=134217728", "memory.max=134217728"},
	{"pod", "memory", "memory.limit_in_bytes=134217728", "memory.max=134217728"},
}

// limitedKnobs are quota and burst, which are equal, of container and pod.
func limitedKnobs(quota string) (out []knob) {
	for _, level := range []string{"main", "pod"} {
		out = append(out,
			knob{level, "cpu", "cpu.cfs_quota_us=" + quota, "cpu.max=" + quota + " 100000"},
			knob{level, "cpu", "cpu.cfs_burst_us=" + quota, "cpu.max.burst=" + quota})
	}
	return out
}

// knob is a cgroup file of one level, "main" for the container, on both versions: file=value.
type knob struct{ level, controller, v1, v2 string }

// TestCriDockerdProxied: our proxy in its CRI mode before cri-dockerd, where it stands in docs/user/proxy.md. A BE and an LS pod have
// their values in the kernel, through a resize and a kill of the proxy, whose next life knows them, and features tells what Docker cannot carry.
func TestCriDockerdProxied(t *testing.T) {
	d, _, socket := dockered(t)
	k := &onDocker{t: t, excuses: lab.NewExcuses()}
	t.Cleanup(func() { k.must(k.excuses.Err()) })
	var err error
	if k.tree, err = cgroups.Detect(); err != nil {
		t.Fatal(err)
	}
	k.proxy, err = critest.StartProxy(t.Context(), critest.ProxyOptions{
		Program: bin("koord-runtime-proxy"), Dir: filepath.Join(d.Dir, "proxy"), Runtime: socket,
		Config: map[string]any{
			"host":     map[string]any{"kubepodsRoot": "/" + d.Cgroup},
			"strategy": map[string]any{"cpuBurstStrategy": map[string]any{"policy": "auto", "cpuBurstPercent": 100}},
		},
	})
	k.must(err)
	t.Cleanup(func() {
		k.must(k.proxy.Kill())
		if text, _ := os.ReadFile(k.proxy.Log); t.Failed() { // the failure is the one to tell
			t.Logf("koord-runtime-proxy's log:\n%s", text[max(0, len(text)-6000):])
		}
	})
	k.client, err = cri.Dial(k.proxy.Socket)
	k.must(err)
	t.Cleanup(func() { k.must(k.client.Close()) })
	logs := filepath.Join(d.Dir, "logs")
	k.must(os.Mkdir(logs, 0o755))
	k.kube, err = kubelet.New(t.Context(), kubelet.Options{CRI: k.client, LogDir: logs, Root: d.Cgroup})
	k.must(err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		k.must(k.kube.Cleanup(ctx))
	})
	k.features()

	be, ls := k.pod(batchOnDocker), k.pod(limitedOnDocker)
	k.soon("after the start", be, batchKnobs...)
	k.soon("after the start", ls, limitedKnobs("50000")...)
	k.stamped(be, "cpu.shares", "512 batch")
	k.stamped(be, "cpu.quota", "50000 batch")

	// Smaller than the burst that stands in the kernel.
	k.resize(ls, "200m")
	k.soon("after a resize", ls, limitedKnobs("20000")...)
	k.must(k.client.UpdateContainer(t.Context(), be.Containers["main"], nativeOfBE))
	k.soon("after the kubelet's update", be, batchKnobs...)

	k.must(k.proxy.Kill())
	k.soon("while the proxy is dead", be, batchKnobs...)
	k.must(k.proxy.Start(t.Context()))
	k.eventually("the kubelet is connected again", func() error { _, err := k.client.Pods(t.Context()); return err })
	k.rebuilt(be, ls)
	second := batchOnDocker
	second.Name, second.UID = "job-2", "5c1e0001-0000-4000-8000-000000000013"
	next := k.pod(second)
	k.soon("after a start by the next life", next, batchKnobs...)
	for _, run := range []*kubelet.Running{be, ls, next} {
		k.must(k.kube.StopPod(t.Context(), run))
	}
	names, err := d.Docker(t.Context(), d.Socket, nil, "ps", "--all", "--quiet")
	if err != nil || names != "" {
		t.Errorf("left in the engine: %q, %v", names, err)
	}
}

// rebuilt shows that a next life of the proxy knows what runs, although cri-dockerd tells no cgroup and no resources: it decides the
// kubelet's updates, also one that leaves the limit out, and writes again what somebody else has overwritten.
func (k *onDocker) rebuilt(be, ls *kubelet.Running) {
	k.t.Helper()
	k.eventually("the containers are known", func() error {
		text, err := k.proxy.Metrics(k.t.Context())
		if err == nil && !strings.Contains(text, "\nkoord_rt_cri_containers 2\n") {
			err = errors.New("koord_rt_cri_containers is not 2")
		}
		return err
	})
	k.soon("in the next life", be, batchKnobs...)
	k.soon("in the next life", ls, limitedKnobs("20000")...)
	k.must(k.client.UpdateContainer(k.t.Context(), be.Containers["main"], nativeOfBE))
	k.soon("after the kubelet's update in the next life", be, batchKnobs...)
	burst, file := "cpu.cfs_burst_us", k.kube.ContainerDir(ls, "main", "cpu")
	if k.tree.V2() {
		burst = "cpu.max.burst"
	}
	k.must(cgroups.Write(file, burst, "0"))
	k.must(k.client.UpdateContainer(k.t.Context(), ls.Containers["main"], &runtimeapi.LinuxContainerResources{CpuShares: 300}))
	k.soon("after an update without a limit", ls, limitedKnobs("20000")...)
	k.resize(ls, "300m")
	k.soon("after a resize in the next life", ls, limitedKnobs("30000")...)
}

func (k *onDocker) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

func (k *onDocker) pod(p kubelet.Pod) *kubelet.Running {
	k.t.Helper()
	run, err := k.kube.StartPod(k.t.Context(), p)
	k.must(err)
	return run
}

// resize gives the LS pod another limit. The kernel refuses a quota below the burst that stands, which a late proxy has not lowered in
// time: then the kubelet asks again after a while.
func (k *onDocker) resize(run *kubelet.Running, cpu kubelet.Quantity) {
	k.t.Helper()
	res := limitedOnDocker.Containers[0].Resources
	res.Limits = map[string]kubelet.Quantity{"cpu": cpu, "memory": "128Mi"}
	k.excuses.Look()
	err := k.kube.ResizeContainer(k.t.Context(), run, "main", res)
	if err != nil && strings.Contains(err.Error(), syscall.EINVAL.Error()) && k.excused(run, err) {
		time.Sleep(time.Second) // what was late may still be under way
		err = k.kube.ResizeContainer(k.t.Context(), run, "main", res)
	}
	k.must(err)
}

// features names the runtime, as cri-dockerd calls itself, and what its requests cannot carry.
func (k *onDocker) features() {
	k.t.Helper()
	k.eventually("features", func() error { // the status may be older than the runtime's word
		out, err := exec.CommandContext(k.t.Context(), bin("koordctl"), "--run-dir", k.proxy.RunDir, "features").CombinedOutput()
		if err != nil {
			return fmt.Errorf("koordctl features: %w: %s", err, out)
		}
		text := strings.Join(strings.Fields(string(out)), " ") // a table's cell may be cut anywhere
		for _, part := range []string{
			"koord-runtime-proxy ", "with docker ", "batch active ", "cpu-burst degraded after start: a CRI request to docker", "has no UpdatePodSandboxResources call",
		} {
			if !strings.Contains(text, part) {
				return fmt.Errorf("features does not say %q:\n%s", part, out)
			}
		}
		return nil
	})
}

// excused tells whether the proxy has logged that it was late with the pod, which excuses err.
func (k *onDocker) excused(run *kubelet.Running, err error) bool {
	k.t.Helper()
	log, _ := os.ReadFile(k.proxy.Log) // none before the first life
	return k.excuses.Take(k.t, lab.Late(string(log)), err, run.Pod.FullName())
}

// stamped fails unless the runtime shows the proxy's mark with a value on the container. One whose creation was decided late has none:
// the request went on as it came.
func (k *onDocker) stamped(run *kubelet.Running, knob, value string) {
	k.t.Helper()
	st, _, err := k.client.ContainerStatus(k.t.Context(), run.Containers["main"])
	k.must(err)
	k.excuses.Look()
	text := st.Annotations[protocol.AnnotationApplied]
	if text == "" && k.excused(run, fmt.Errorf("%s has no mark", run.Pod.Name)) {
		return
	}
	m, err := protocol.ParseApplied(text)
	if err != nil || !strings.HasPrefix(m.By, "koord-runtime-proxy/") || m.Set[knob] != value {
		k.t.Errorf("%s: mark %+v, %v, want %s = %s", run.Pod.Name, m, err, knob, value)
	}
}

func (k *onDocker) eventually(what string, ok func() error) {
	k.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			k.t.Fatalf("%s: %v", what, err)
		}
	}
}

// soon fails when the kernel does not hold the values within a moment: Docker's requests carry no burst and no memory knobs of v2.
func (k *onDocker) soon(when string, run *kubelet.Running, want ...knob) {
	k.t.Helper()
	k.eventually(when, func() error {
		for _, w := range want {
			dir, spec := k.kube.PodDir(run, w.controller), w.v1
			if w.level != "pod" {
				dir = k.kube.ContainerDir(run, w.level, w.controller)
			}
			if k.tree.V2() {
				spec = w.v2
			}
			file, value, _ := strings.Cut(spec, "=")
			if got, err := cgroups.Read(dir, file); err != nil || got != value {
				return fmt.Errorf("%s: want %s %s, the kernel has %q (%v)", run.Pod.Name, w.level, spec, got, err)
			}
		}
		return nil
	})
}
