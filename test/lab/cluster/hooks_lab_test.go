// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
	"github.com/koord-rt/koord-rt/test/lab/cri"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// hookServer is the owner that upstream's koordlet has by the name of its file.
const hookServer = "hook:koordlet"

// TestClusterHooks: upstream's koordlet 1.8.0 is the hook server behind our proxy. Its NodeSLO says that batch pods have
// no quota, ours knows nothing of that: the configuration alone says whose quota holds.
func TestClusterHooks(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Minute)
	defer cancel()
	h := startHost(ctx, t, parts.Kubelet, parts.UpstreamKoordlet)
	c := start(t, filepath.Join(h.Dir, "cluster"))
	folder := filepath.Join(c.Dir, "upstream-node0", "hookserver.d") // StartUpstream's, for the default node
	hooks := func(merge string) map[string]any {
		return map[string]any{"dir": folder, "merge": merge, "timeout": "10s"}
	}
	p := startProxy(ctx, t, h, map[string]any{"hooks": hooks("yields")})
	k, err := c.StartKubelet(ctx, cluster.KubeletOptions{Runtime: p.Socket, CgroupRoot: h.Cgroup})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	tree, err := cgroups.Detect()
	if err != nil {
		t.Fatal(err)
	}
	n := &hooked{colocated: &colocated{c: c, k: k, p: p, h: h, tree: tree}}
	runBatchPod(ctx, t, c, k) // upstream waits for a pod
	n.koordlet(ctx, t)
	n.await(t)
	t.Run("yields", func(t *testing.T) {
		pod := n.pod(t, "yields")
		n.settings(t, pod, "50000", ours)
	})
	n.change(t, map[string]any{"hooks": hooks("replaces")})
	t.Run("replaces", func(t *testing.T) {
		pod := n.pod(t, "replaces")
		// Where both want the same there is nothing to replace.
		n.settings(t, pod, "-1", map[string]string{"cpu.quota": "-1 " + hookServer, "cpu.shares": "512 batch", "memory.limit": "67108864 batch"})
		n.holds(t, pod, "cpu", "cpu.cfs_quota_us=-1", "cpu.max=max 100000")
		n.update(t, pod)
		n.called(t, pod)
	})
	n.change(t, map[string]any{"hooks": hooks("yields"), "features": map[string]any{"batch": "off"}})
	t.Run("alone", func(t *testing.T) {
		pod := n.pod(t, "alone")
		n.settings(t, pod, "-1", map[string]string{
			"cpu.quota": "-1 " + hookServer, "cpu.shares": "512 " + hookServer, "memory.limit": "67108864 " + hookServer,
		})
		n.holds(t, pod, "memory", "memory.limit_in_bytes=67108864", "memory.max=67108864")
	})
	n.change(t, map[string]any{"hooks": hooks("yields")})
	t.Run("killed", n.killed)
}

// ours are a batch pod's values where the hook server yields or is passed over.
var ours = map[string]string{"cpu.quota": "50000 batch", "cpu.shares": "512 batch", "memory.limit": "67108864 batch"}

// killed: the registration of a hook server that was killed says whether its pods start without it. Those that do not, do
// when it is back.
func (n *hooked) killed(t *testing.T) {
	die := func() {
		t.Helper()
		if err := n.upstream.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	live := func() {
		t.Helper()
		if err := n.upstream.Start(t.Context(), "-runtime-hooks-failure-policy=Fail"); err != nil {
			t.Fatal(err)
		}
	}
	die()
	n.settings(t, n.pod(t, "ignored"), "50000", ours)
	live()
	n.logs(t, n.p.Log, func(text string) bool { return strings.Contains(text, "policies=[Fail]") })
	die()
	n.create(t, "refused", batchMeta, "resources: {}")
	eventually(t, soon, func() error {
		events, err := n.c.Admin().Items(t.Context(), "/api/v1/namespaces/batch/events")
		if err != nil {
			return err
		}
		for _, e := range events {
			if said := e.Str("message"); e.Str("involvedObject", "name") == "refused" && strings.Contains(said, "hook server koordlet") && strings.Contains(said, "Fail") {
				return nil
			}
		}
		return errors.New("the kubelet tells of no hook server that has refused the pod")
	})
	live()
	n.settings(t, n.ready(t, "refused"), "50000", ours)
}

// hooked is a node whose proxy asks upstream's koordlet.
type hooked struct {
	*colocated
	upstream *cluster.Upstream
}

// koordlet starts upstream's. Its suppression stays off: the quota of the tier would bound the pods'.
func (n *hooked) koordlet(ctx context.Context, t *testing.T) {
	t.Helper()
	part, err := parts.Open(parts.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := part.Get(ctx, parts.UpstreamKoordlet)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.c.ApplyFolder(ctx, filepath.Join(dir, "crds")); err != nil {
		t.Fatal(err)
	}
	n.strategy(t, cfsQuota)
	begun := time.Now()
	n.upstream, err = n.c.StartUpstream(ctx, n.k, cluster.UpstreamOptions{
		Gates: "BECPUSuppress=false", Args: []string{"-v=5", "-runtime-hooks-reconcile-interval=1h"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.upstream.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("upstream's koordlet has its hook server up after %s", time.Since(begun).Round(time.Millisecond))
}

// NodeSLOs by which upstream leaves batch pods without a quota of their own, or not.
const (
	cfsQuota = "{resourceUsedThresholdWithBE: {enable: true, cpuSuppressPolicy: cfsQuota}}"
	ownQuota = "{resourceUsedThresholdWithBE: {enable: false, cpuSuppressPolicy: cfsQuota}}"
)

// strategy writes upstream's NodeSLO.
func (n *hooked) strategy(t *testing.T, spec string) {
	t.Helper()
	slo := "apiVersion: slo.koordinator.sh/v1alpha1\nkind: NodeSLO\nmetadata: {name: " + n.k.Node + "}\nspec: " + spec + "\n"
	if _, err := n.c.Admin().Apply(t.Context(), "lab", true, []byte(slo)); err != nil {
		t.Fatal(err)
	}
}

// says writes upstream's NodeSLO and waits until its last rule is the wanted one.
func (n *hooked) says(t *testing.T, spec, rule string) {
	t.Helper()
	n.strategy(t, spec)
	n.logs(t, n.upstream.Log, func(text string) bool {
		last := strings.LastIndex(text, "new rule: CFSQuotaEnabled")
		return last >= 0 && strings.HasPrefix(text[last:], "new rule: "+rule)
	})
}

// await waits until upstream has read the NodeSLO and the proxy knows the hook server; one that is there when the proxy
// starts is known from the first call on.
func (n *hooked) await(t *testing.T) {
	t.Helper()
	n.says(t, cfsQuota, "CFSQuotaEnabled false")
	n.logs(t, n.p.Log, func(text string) bool { return strings.Contains(text, "registered=[koordlet]") })
}

// logs waits until a log is as wanted.
func (n *hooked) logs(t *testing.T, path string, ok func(string) bool) {
	t.Helper()
	for begun := time.Now(); !ok(read(t, path)); time.Sleep(100 * time.Millisecond) {
		if time.Since(begun) > soon {
			t.Fatalf("%s is not as wanted:\n%s", path, logEnd(path))
		}
	}
}

// change starts the proxy on other settings.
func (n *hooked) change(t *testing.T, more map[string]any) {
	t.Helper()
	if err := n.p.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := n.p.Configure(proxyConfig(n.h, more)); err != nil {
		t.Fatal(err)
	}
	if err := n.p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.await(t)
}

// pod runs a batch pod through the kubelet and the proxy.
func (n *hooked) pod(t *testing.T, name string) cluster.Object {
	t.Helper()
	n.create(t, name, batchMeta, "resources: {}")
	return n.ready(t, name)
}

// settings checks whose value holds by the runtime's own record of the container, its mark, and koordctl. The kernel is not
// asked where the two disagree: upstream's koordlet writes its own value there when it sees the pod.
func (n *hooked) settings(t *testing.T, pod cluster.Object, quota string, want map[string]string) {
	t.Helper()
	status, info, err := n.h.CRI().ContainerStatus(t.Context(), idOf(pod))
	if err != nil {
		t.Fatal(err)
	}
	var spec struct {
		Linux struct {
			Resources struct {
				CPU struct{ Quota json.Number }
			}
		}
	}
	if err := json.Unmarshal(info.RuntimeSpec, &spec); err != nil || string(spec.Linux.Resources.CPU.Quota) != quota {
		t.Errorf("the container was made with the quota %s, %v; want %s", spec.Linux.Resources.CPU.Quota, err, quota)
	}
	var mark struct{ Set map[string]string }
	if err := json.Unmarshal([]byte(status.Annotations["koord-rt.dev/applied"]), &mark); err != nil {
		t.Fatalf("mark %q: %v", status.Annotations["koord-rt.dev/applied"], err)
	}
	for knob, value := range want {
		if mark.Set[knob] != value {
			t.Errorf("the mark has %s %q, want %q", knob, mark.Set[knob], value)
		}
	}
	eventually(t, 10*time.Second, func() error { // records follow the reply
		explained, err := n.explain(t, pod)
		if err != nil {
			return err
		}
		for knob, value := range want {
			if explained[knob] != value {
				return fmt.Errorf("koordctl explains %s as %q, want %q", knob, explained[knob], value)
			}
		}
		return nil
	})
}

// explain is koordctl's word on the pod's container: knob to "value owner".
func (n *hooked) explain(t *testing.T, pod cluster.Object) (map[string]string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), bin("koordctl"), "--run-dir", n.p.RunDir, "-o", "json", "explain", idOf(pod))
	text, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return nil, fmt.Errorf("koordctl explain: %w: %s", err, failed.Stderr)
	} else if err != nil {
		return nil, err
	}
	var said struct {
		Settings []struct{ Level, Knob, Want, Owner string }
	}
	if err := json.Unmarshal(text, &said); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, s := range said.Settings {
		if s.Level == "container" {
			out[s.Knob] = s.Want + " " + s.Owner
		}
	}
	return out, nil
}

// update sends what a kubelet's resize would: a best-effort pod has none. What upstream answers then is what holds, also
// when it is no longer what it has said at the creation.
func (n *hooked) update(t *testing.T, pod cluster.Object) {
	t.Helper()
	client, err := cri.Dial(n.p.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, step := range []struct{ spec, rule, quota string }{
		{cfsQuota, "CFSQuotaEnabled false", "-1 " + hookServer}, {ownQuota, "CFSQuotaEnabled true", "50000 batch"}, {cfsQuota, "CFSQuotaEnabled false", "-1 " + hookServer},
	} {
		n.says(t, step.spec, step.rule)
		if err := client.UpdateContainer(t.Context(), idOf(pod), &runtimeapi.LinuxContainerResources{CpuShares: 2}); err != nil {
			t.Fatal(err)
		}
		n.holds(t, pod, "cpu", "cpu.shares=512", "cpu.weight=20")
		eventually(t, 10*time.Second, func() error { // records follow the reply
			explained, err := n.explain(t, pod)
			if got := explained["cpu.quota"]; err == nil && got != step.quota {
				err = fmt.Errorf("after an update with upstream's rule %s koordctl explains cpu.quota as %q, want %q", step.rule, got, step.quota)
			}
			return err
		})
	}
}

// called fails unless upstream has logged every hook that it had registered, for that pod.
func (n *hooked) called(t *testing.T, pod cluster.Object) {
	t.Helper()
	var registered struct {
		Hooks []string `json:"runtime-hooks"`
	}
	if err := json.Unmarshal([]byte(read(t, n.upstream.Registration())), &registered); err != nil {
		t.Fatal(err)
	}
	path := batchPods + pod.Str("metadata", "name")
	if err := n.c.Admin().Delete(t.Context(), path, time.Second); err != nil {
		t.Fatal(err)
	}
	n.wait(t, pod.Str("metadata", "name"), "gone", func(p cluster.Object) bool { return p == nil })
	var missing []string
	for begun := time.Now(); time.Since(begun) < soon; time.Sleep(100 * time.Millisecond) {
		missing = slices.DeleteFunc(slices.Clone(registered.Hooks), func(hook string) bool {
			return hasLine(read(t, n.upstream.Log), "receive "+hook+"Hook request", pod.Str("metadata", "uid"))
		})
		if len(missing) == 0 {
			break
		}
	}
	t.Logf("upstream has registered %v", registered.Hooks)
	if len(missing) > 0 || len(registered.Hooks) == 0 {
		t.Errorf("of the hooks %v upstream was not asked %v", registered.Hooks, missing)
	}
}

// hasLine tells whether a line of text has all parts.
func hasLine(text string, all ...string) bool {
	for line := range strings.Lines(text) {
		if !slices.ContainsFunc(all, func(part string) bool { return !strings.Contains(line, part) }) {
			return true
		}
	}
	return false
}
