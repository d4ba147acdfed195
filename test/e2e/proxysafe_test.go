// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/koord-rt/koord-rt/adapt/hook"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
	"github.com/koord-rt/koord-rt/test/scenario"
)

var safeLives = []proxyLife{
	{"Required", proxyRequired},
	{"Secrets", proxySecrets},
	{"Malformed", proxyMalformed},
	{"Restore", proxyRestore},
	{"Koordctl", proxyKoordctl},
	{"Hooks", proxyHooks},
	{"Transparent", proxyTransparent},
	{"CDI", proxyCDI},
	{"HAMi", proxyHAMi},
	{"SlowKernel", proxySlowKernel},
}

// TestHostProxySafe is what the proxy refuses, hides, passes on and gives back.
func TestHostProxySafe(t *testing.T) {
	proxyLives(t, rigOptions{nri: wide}, safeLives)
}

// TestGuestProxySafe is the same in a VM.
func TestGuestProxySafe(t *testing.T) {
	proxyLives(t, rigOptions{nri: wide}, safeLives)
}

// proxyRequired: fail-closed by the pod's annotation.
func proxyRequired(p *viaProxy) {
	ctx := p.t.Context()
	p.upProxy(standard, map[string]any{"features": map[string]string{"blkio": "off"}})
	needs := func(name, features string) kubelet.Pod {
		pod := bePod(name)
		pod.Annotations = mergeMaps(pod.Annotations, map[string]string{protocol.AnnotationRequired: features})
		return pod
	}
	p.proved(needs("required-can", "batch,oom-score"), wants("BE", ""))

	_, err := p.kube.RunPod(ctx, needs("required-off", "blkio"))
	if err == nil || !strings.Contains(err.Error(), "koord-rt") || !strings.Contains(err.Error(), "blkio") {
		p.t.Errorf("a pod that requires a feature which is off: %v", err)
	}

	// The scheduling policy has no field in CRI: it would come after the first instruction.
	run, err := p.kube.RunPod(ctx, needs("required-late", "cpu-identity"))
	if err != nil {
		p.t.Fatal(err)
	}
	p.cleanPod(run)
	_, err = p.kube.CreateContainer(ctx, run, "main")
	for _, part := range []string{"koord-rt", "sched.policy", "cpu-identity", "after the start"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			p.t.Errorf("the refusal does not say %q: %v", part, err)
		}
	}
	containers, err := p.host.CRI().Containers(ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, c := range containers {
		if c.PodSandboxId == run.SandboxID {
			p.t.Error("the runtime has made the refused container")
		}
	}
	p.soon(2*time.Second, p.pod(bePod("required-not")), wants("BE", ""))
}

// proved makes a pod that demands a guarantee, and waits for its values. The proxy proves what runs already, and ends it without: where that
// was too early, as its log has to say, the kubelet makes the pod once more.
func (p *viaProxy) proved(pod kubelet.Pod, wants []string) {
	p.t.Helper()
	run, again := p.pod(pod), false
	p.eventually(2*time.Second, func() error {
		err := p.differs(run, wants)
		if err == nil || again || !p.tooEarly(pod, p.ended(pod)) {
			return err
		}
		again = true
		if err := p.kube.StopPod(p.t.Context(), run); err != nil {
			p.t.Fatal(err)
		}
		run = p.pod(pod)
		return p.differs(run, wants)
	})
}

// ended is why the proxy has ended a pod's container, nil where its log says nothing of it.
func (p *viaProxy) ended(pod kubelet.Pod) error {
	for line := range strings.Lines(p.out.String()) {
		if strings.Contains(line, "default/"+pod.Name+"/main") && strings.Contains(line, `what="required guarantee"`) {
			return errors.New(line)
		}
	}
	return nil
}

// marker stands for a secret in a container's environment.
const marker = "s3cr3t-4f1c9a77"

// proxySecrets: no value of a variable leaves the request, with and without a hook server, on success and on failure.
func proxySecrets(p *viaProxy) {
	secret := func(name string) kubelet.Pod {
		pod := bePod(name)
		pod.Containers[0].Env = map[string]string{"TOKEN": marker}
		return pod
	}
	p.upProxy(standard, map[string]any{"log": map[string]any{"level": "debug"}})
	if st, err := os.Stat(p.socket); err != nil || st.Mode().Perm() != 0o600 || st.Sys().(*syscall.Stat_t).Uid != 0 {
		p.t.Errorf("socket %v, %v", st, err)
	}
	p.soon(2*time.Second, p.pod(secret("secret-plain")), wants("BE", ""))

	hooked := p.hookServer("unix")
	var asks []*kubelet.Running
	p.eventually(10*time.Second, func() error {
		asks = append(asks, p.pod(secret(fmt.Sprintf("secret-%d", time.Now().UnixNano()))))
		if !hooked.saw(hook.PreCreateContainer, marker) {
			return errors.New("the hook server has not been asked")
		}
		return nil
	})
	for _, run := range asks {
		p.soon(2*time.Second, run, wants("BE", ""))
	}
	hooked.fail()
	p.soon(2*time.Second, p.pod(secret("secret-failing")), wants("BE", ""))
	broken := secret("secret-broken")
	broken.Annotations["koordinator.sh/oom-score-adj"] = "not a number " + "x"
	p.pod(broken)
	p.end(syscall.SIGTERM)

	if strings.Contains(p.out.String(), marker) {
		p.t.Error("the log has the value of a variable")
	}
	err := filepath.WalkDir(filepath.Dir(p.config), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(marker)) {
			p.t.Errorf("%s has the value of a variable", path)
		}
		return err
	})
	if err != nil {
		p.t.Error(err)
	}
}

// bytesCodec sends and receives messages as they are.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (bytesCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func (bytesCodec) Name() string { return "proto" }

// proxyMalformed compares the answers to bytes that are no request, with and without the proxy.
func proxyMalformed(p *viaProxy) {
	p.upProxy(standard, nil)
	direct, proxied := p.raw(p.host.Socket), p.raw(p.socket)
	garbage := map[string][]byte{
		"noise":     {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"truncated": {0x0a, 0x7f, 'a', 'b'},
		"empty":     {},
		"wrong wire": {
			0x08, 0x01, 0x10, 0x01, 0x18, 0x01},
		"group":    {0x0b, 0x0c},
		"not UTF8": {0x0a, 0x02, 0xc3, 0x28},
	}
	for _, method := range []string{"RunPodSandbox", "CreateContainer", "StartContainer", "UpdateContainerResources", "StopContainer",
		"RemoveContainer", "StopPodSandbox", "RemovePodSandbox", "UpdatePodSandboxResources", "ListContainers", "NoSuchMethod"} {
		for what, raw := range garbage {
			path := "/runtime.v1.RuntimeService/" + method
			want, wantErr := call(p, direct, path, raw)
			got, gotErr := call(p, proxied, path, raw)
			w, g := status.Convert(wantErr), status.Convert(gotErr)
			if w.Code() != g.Code() || w.Message() != g.Message() || !bytes.Equal(want, got) {
				p.t.Errorf("%s with %s: %v %q through the proxy, %v %q without", method, what, g.Code(), g.Message(), w.Code(), w.Message())
			}
		}
	}
	if p.proxyMetric("koord_rt_cri_fail_open_total", `reason="error"`) == 0 {
		p.t.Error("requests that cannot be decoded are not counted")
	}
	p.eventually(5*time.Second, func() error {
		for _, r := range p.records() {
			if r.Via == journal.ViaProblem && strings.Contains(r.Reason, "as it came") {
				return nil
			}
		}
		return errors.New("the ledger does not say that a request went on as it came")
	})
	p.soon(2*time.Second, p.pod(bePod("after-noise")), wants("BE", ""))
}

func (p *viaProxy) raw(socket string) *grpc.ClientConn {
	p.t.Helper()
	c, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(bytesCodec{})))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = c.Close() })
	return c
}

func call(p *viaProxy, c *grpc.ClientConn, path string, raw []byte) (reply []byte, err error) {
	err = c.Invoke(p.t.Context(), path, &raw, &reply)
	return reply, err
}

// proxyRestore: what the proxy has written, in requests and directly, is taken back, byte for byte: cgroups, the disk's limits and the
// resctrl groups.
func proxyRestore(p *viaProxy) {
	_, rest := cpus()
	old := []*kubelet.Running{p.pod(lsPod("old-ls")), p.pod(bePod("old-be")), p.pod(lsrPod("old-lsr")), p.pod(idlePod("old-idle"))}
	before, attributes, groups := p.treesOf(old), p.attributesOf(old), resctrlTree(p.rig)
	disk, number := p.disk()
	p.upProxy(everything(disk), onlyEvents())
	p.soon(5*time.Second, old[0], wants("LS", rest))
	p.soon(5*time.Second, old[1], wants("BE", rest))
	p.soon(5*time.Second, old[2], wants("LSR", ""))
	p.soon(5*time.Second, old[3], wants("idle", rest))
	fresh := p.pod(bePod("new-be"))
	p.soon(5*time.Second, fresh, wants("BE", rest))
	p.soon(5*time.Second, fresh, limitedDisk(p.rig, number))
	p.soon(5*time.Second, old[1], limitedDisk(p.rig, number))
	if slices.Contains(present(p.t), scenario.NeedResctrl) && len(differences(groups, resctrlTree(p.rig))) == 0 {
		p.t.Error("no resctrl group was made: its restore shows nothing")
	}
	p.end(syscall.SIGTERM)
	if err := p.kube.StopPod(p.t.Context(), fresh); err != nil {
		p.t.Fatal(err)
	}
	if out, err := p.ctl("restore"); err != nil {
		p.t.Fatalf("restore: %v\n%s", err, out)
	}
	for _, d := range differences(before, p.treesOf(old)) {
		if !p.tree.V2() || !widest.MatchString(d) {
			p.t.Errorf("after restore: %s", d)
		}
	}
	p.identical("resctrl after restore", groups, resctrlTree(p.rig))
	p.identical("processes after restore", attributes, p.attributesOf(old))
	if out, err := p.ctl("restore"); err != nil || !strings.Contains("\n"+out, "\n0 restored, ") {
		p.t.Errorf("a second restore finds something to do: %v\n%s", err, out)
	}
}

// proxyKoordctl asks the questions of a person where there is only the proxy, and before that of one who has koord-nri where its runtime
// has no NRI.
func proxyKoordctl(p *viaProxy) {
	_, rest := cpus()
	p.nriOff()
	p.upProxy(standard, nil)
	ls := p.pod(lsPod("ctl-ls"))
	made := time.Now()
	be := p.pod(bePod("ctl-be"))
	owned := time.Now()
	p.pod(lsrPod("ctl-lsr"))
	p.soon(5*time.Second, ls, wants("LS", rest))
	p.soon(5*time.Second, be, wants("BE", rest))
	p.dated(be, "cpu.quota", made, time.Now())
	p.dated(be, "cpuset.cpus", owned, time.Now())
	p.answers([]string{"features"}, "koord-runtime-proxy", "containerd", "after start: a CRI request to containerd", "sched.policy")
	p.answers([]string{"explain", "default/ctl-be"}, "cpu.quota", "batch", "batch-cpu limit", "oom_score_adj", "sched.policy", "class BE", "memory.limit")
	p.answers([]string{"explain", "default/ctl-ls/main"}, "cpu.burst", "100% of limit", "cpuset.cpus", rest, "no pod owns")
	p.answers([]string{"diff", "--exit-code"}, "0 of ")
	release := p.hold(p.cmd.Process) // its next look would undo a hand's value before it is seen
	wrote := time.Now()
	file := map[bool]string{false: "cpu.cfs_quota_us", true: "cpu.max"}[p.tree.V2()]
	if err := cgroups.Write(p.kube.ContainerDir(be, "main", "cpu"), file, "40000"); err != nil {
		p.t.Fatal(err)
	}
	p.drifted("default/ctl-be")
	release()
	p.soon(30*time.Second, be, wants("BE", rest))
	if last := p.dated(be, "cpu.quota", wrote, time.Now()); last == nil || last.When.Before(wrote) || last.Found != "40000" {
		p.t.Errorf("explain does not say that 40000 was found after %s: %+v", wrote, last)
	}
	if p.proxyMetric("koord_rt_cri_proof_total", `result="drift"`) == 0 {
		p.t.Error("the drift was repaired and not counted")
	}
	p.diagnosed("koord-runtime-proxy", func() { p.end(syscall.SIGKILL) })
}
