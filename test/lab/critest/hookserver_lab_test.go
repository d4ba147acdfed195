// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package critest_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/cri"
	"github.com/koord-rt/koord-rt/test/lab/critest"
	"github.com/koord-rt/koord-rt/test/lab/host"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// NodeSLOs by which upstream leaves batch pods without a quota of their own, or not.
const (
	noQuota  = `{"resourceUsedThresholdWithBE": {"enable": true, "cpuSuppressPolicy": "cfsQuota"}}`
	ownQuota = `{"resourceUsedThresholdWithBE": {"enable": false, "cpuSuppressPolicy": "cfsQuota"}}`
)

// hooked is a containerd behind our proxy, which asks upstream's hook server.
type hooked struct {
	*critest.HookServer
	t      *testing.T
	h      *host.Host
	p      *critest.Proxy
	client *cri.Client
	tree   cgroups.Tree
	pods   int
}

// TestCritestHookServer: the hook server of upstream's koordlet 1.8.0, as it stands in its package runtimehooks, behind our
// proxy. Its NodeSLO says that batch pods have no quota, ours knows nothing of that: the configuration alone says whose
// quota holds. The koordlet around it is in TestClusterUpstreamHooks.
func TestCritestHookServer(t *testing.T) {
	cache, err := parts.Open(parts.Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	host, err := host.Start(t.Context(), host.Options{Cache: cache, DisableNRI: true})
	if err != nil {
		t.Fatal(err)
	}
	n := &hooked{t: t, h: host}
	t.Cleanup(func() { n.must(host.Close()) })
	if n.tree, err = cgroups.Detect(); err != nil {
		t.Fatal(err)
	}
	n.p, err = critest.StartProxy(t.Context(), critest.ProxyOptions{
		Program: bin("koord-runtime-proxy"), Dir: filepath.Join(host.Dir, "proxy"), Runtime: host.Socket, Config: n.config("yields", nil),
	})
	n.must(err)
	t.Cleanup(func() { n.must(n.p.Kill()) })
	dir := filepath.Join(host.Dir, "upstream")
	n.must(os.Mkdir(dir, 0o755))
	n.HookServer, err = critest.NewHookServer(t.Context(), critest.HookServerOptions{Cache: cache, Dir: dir, Hooks: n.p.Hooks})
	n.must(err)
	n.must(n.Start(t.Context(), "Ignore"))
	t.Cleanup(func() { n.must(n.Kill()) })
	n.client, err = cri.Dial(n.p.Socket)
	n.must(err)
	t.Cleanup(func() { n.must(n.client.Close()) })
	n.says(noQuota, "CFSQuotaEnabled false")
	n.asked()

	pod := n.pod("yields")
	n.made(pod, "50000", "50000 batch", "512 batch", "67108864 batch")
	n.called(pod)

	n.again("replaces", nil)
	pod = n.pod("replaces")
	// Where both want the same there is nothing to replace.
	n.made(pod, "-1", "-1 hook:koordlet", "512 batch", "67108864 batch")
	n.quota(pod, "-1")
	for _, s := range []struct{ spec, rule, quota string }{{ownQuota, "CFSQuotaEnabled true", "50000"}, {noQuota, "CFSQuotaEnabled false", "-1"}} {
		n.says(s.spec, s.rule)
		n.must(n.client.UpdateContainer(t.Context(), pod.container, &runtimeapi.LinuxContainerResources{CpuShares: 2}))
		n.quota(pod, s.quota) // what it answers to an update holds from then on
	}

	n.again("yields", map[string]any{"batch": "off"})
	n.made(n.pod("alone"), "-1", "-1 hook:koordlet", "512 hook:koordlet", "67108864 hook:koordlet")
	n.policies()
}

// policies: a hook server that was killed is passed over, or the call is refused, as its registration says.
func (n *hooked) policies() {
	n.t.Helper()
	n.again("yields", nil)
	n.must(n.Kill())
	n.made(n.pod("ignored"), "50000", "50000 batch", "512 batch", "67108864 batch")
	n.must(n.Start(n.t.Context(), "Fail"))
	n.says(noQuota, "CFSQuotaEnabled false")
	n.eventually("the proxy has read the new policy", func() error {
		n.must(n.Kill())
		defer func() { n.must(n.Start(n.t.Context(), "Fail")) }()
		_, err := n.client.RunPod(n.t.Context(), n.sandbox("refused"), "")
		if err == nil || !strings.Contains(err.Error(), "hook server koordlet") || !strings.Contains(err.Error(), "Fail") {
			return fmt.Errorf("a pod whose hook server is away: %v", err)
		}
		return nil
	})
	n.says(noQuota, "CFSQuotaEnabled false")
	n.made(n.pod("back"), "50000", "50000 batch", "512 batch", "67108864 batch")
}

func (n *hooked) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *hooked) config(merge string, features map[string]any) map[string]any {
	out := map[string]any{
		"hooks": map[string]any{"dir": filepath.Join(n.h.Dir, "proxy", "hookserver.d"), "merge": merge, "timeout": "10s"},
		"host":  map[string]any{"kubepodsRoot": "/" + n.h.Cgroup},
	}
	if features != nil {
		out["features"] = features
	}
	return out
}

// again starts the proxy on other settings; it knows the hook server from the first call on.
func (n *hooked) again(merge string, features map[string]any) {
	n.t.Helper()
	n.must(n.p.Kill())
	n.must(n.p.Configure(n.config(merge, features)))
	n.must(n.p.Start(n.t.Context()))
}

// asked waits until the proxy knows the hook server.
func (n *hooked) asked() {
	n.t.Helper()
	n.eventually("the proxy knows the hook server", func() error {
		return n.logged(n.p.Log, func(line string) bool { return strings.Contains(line, "registered=[koordlet]") })
	})
}

// says tells upstream a NodeSLO and waits until its last rule is the wanted one.
func (n *hooked) says(spec, rule string) {
	n.t.Helper()
	n.must(n.Says(spec))
	n.eventually("upstream's rule", func() error {
		text, err := os.ReadFile(n.Log)
		if err != nil {
			return err
		}
		last := strings.LastIndex(string(text), "new rule: CFSQuotaEnabled")
		if last < 0 || !strings.HasPrefix(string(text[last:]), "new rule: "+rule) {
			return fmt.Errorf("it is not %s", rule)
		}
		return nil
	})
}

func (n *hooked) logged(file string, ok func(line string) bool) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if ok(line) {
			return nil
		}
	}
	return fmt.Errorf("%s has no such line", file)
}

func (n *hooked) eventually(what string, ok func() error) {
	n.t.Helper()
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		err := ok()
		if err == nil {
			return
		}
		if time.Since(begun) > 30*time.Second {
			text, _ := os.ReadFile(n.Log) // beside the failure itself
			n.t.Fatalf("%s: %v; end of upstream's log:\n%s", what, err, text[max(0, len(text)-4000):])
		}
	}
}

// batchPod is a pod with one container that runs.
type batchPod struct{ uid, sandbox, container, dir string }

func (n *hooked) sandbox(name string) *runtimeapi.PodSandboxConfig {
	n.pods++
	uid := fmt.Sprintf("5c1e0041-0000-4000-8000-%012d", n.pods)
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "batch", Uid: uid},
		Labels: map[string]string{
			"koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "koord-batch",
			"io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": "batch", "io.kubernetes.pod.uid": uid,
		},
		Annotations: map[string]string{"node.koordinator.sh/extended-resource-spec": `{"containers":{"main":{` +
			`"requests":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"64Mi"},"limits":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"64Mi"}}}}`},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: "/" + n.h.Cgroup + "/kubepods/besteffort/pod" + uid,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
			},
		},
	}
}

func (n *hooked) pod(name string) batchPod {
	n.t.Helper()
	config := n.sandbox(name)
	sandbox, err := n.client.RunPod(n.t.Context(), config, "")
	n.must(err)
	labels := map[string]string{"io.kubernetes.container.name": "main"}
	for _, k := range []string{"io.kubernetes.pod.name", "io.kubernetes.pod.namespace", "io.kubernetes.pod.uid"} {
		labels[k] = config.Labels[k]
	}
	id, err := n.client.CreateContainer(n.t.Context(), sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: &runtimeapi.ImageSpec{Image: parts.ImageRef}, Labels: labels,
		Linux: &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{CpuShares: 2, OomScoreAdj: 1000}},
	}, config)
	n.must(err)
	n.must(n.client.StartContainer(n.t.Context(), id))
	return batchPod{config.Metadata.Uid, sandbox, id, config.Linux.CgroupParent + "/" + id}
}

// made checks whose values hold, by the runtime's own record of the container and by its mark.
func (n *hooked) made(pod batchPod, quota, markedQuota, shares, memory string) {
	n.t.Helper()
	st, info, err := n.client.ContainerStatus(n.t.Context(), pod.container)
	n.must(err)
	var spec struct {
		Linux struct {
			Resources struct {
				CPU struct{ Quota json.Number }
			}
		}
	}
	if err := json.Unmarshal(info.RuntimeSpec, &spec); err != nil || string(spec.Linux.Resources.CPU.Quota) != quota {
		n.t.Errorf("the container was made with the quota %s, %v; want %s", spec.Linux.Resources.CPU.Quota, err, quota)
	}
	var mark struct{ Set map[string]string }
	n.must(json.Unmarshal([]byte(st.Annotations["koord-rt.dev/applied"]), &mark))
	for knob, want := range map[string]string{"cpu.quota": markedQuota, "cpu.shares": shares, "memory.limit": memory} {
		if mark.Set[knob] != want {
			n.t.Errorf("the mark of %s has %s %q, want %q", st.Metadata.Name, knob, mark.Set[knob], want)
		}
	}
}

// quota compares the kernel's.
func (n *hooked) quota(pod batchPod, want string) {
	n.t.Helper()
	root, file := n.tree.Controllers["cpu"], "cpu.cfs_quota_us"
	if n.tree.V2() {
		root, file, want = n.tree.Unified, "cpu.max", strings.Replace(want, "-1", "max", 1)+" 100000"
	}
	n.eventually("the quota", func() error {
		if got, err := cgroups.Read(filepath.Join(root, pod.dir), file); err != nil || got != want {
			return fmt.Errorf("%s is %q, want %s (%v)", file, got, want, err)
		}
		return nil
	})
}

// called removes a pod, and fails unless upstream has logged every hook that it had registered, for that pod.
func (n *hooked) called(pod batchPod) {
	n.t.Helper()
	ctx := n.t.Context()
	n.must(n.client.UpdateContainer(ctx, pod.container, &runtimeapi.LinuxContainerResources{CpuShares: 2}))
	n.must(n.client.StopContainer(ctx, pod.container, 0))
	n.must(n.client.StopPod(ctx, pod.sandbox))
	n.must(n.client.RemovePod(ctx, pod.sandbox))
	var registered struct {
		Hooks []string `json:"runtime-hooks"`
	}
	text, err := os.ReadFile(n.Registration)
	n.must(err)
	n.must(json.Unmarshal(text, &registered))
	if !slices.Contains(registered.Hooks, "PreCreateContainer") || !slices.Contains(registered.Hooks, "PreUpdateContainerResources") {
		n.t.Errorf("upstream has registered %v", registered.Hooks)
	}
	for _, hook := range registered.Hooks {
		n.eventually("upstream is asked "+hook, func() error {
			return n.logged(n.Log, func(line string) bool {
				return strings.Contains(line, "receive "+hook+"Hook request") && strings.Contains(line, pod.uid)
			})
		})
	}
}
