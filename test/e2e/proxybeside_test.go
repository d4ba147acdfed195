// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/host"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
	"github.com/koord-rt/koord-rt/test/scenario"
)

// TestHostProxyBesideScenarios is the conformance with both programs on one node: nothing is applied twice.
func TestHostProxyBesideScenarios(t *testing.T) { besideScenarios(t) }

// TestGuestProxyBesideScenarios is the same in a VM.
func TestGuestProxyBesideScenarios(t *testing.T) { besideScenarios(t) }

func besideScenarios(t *testing.T) {
	p := newProxyRig(t, rigOptions{memory: paperMemory, nri: host.Options{Handlers: foreignHandlers}})
	for _, s := range p.fitting() {
		t.Run(s.Name, func(t *testing.T) {
			p := p.subProxy(t)
			p.freshRun()
			p.prepare(&s)
			p.realDevices(s.Devices)
			p.extra = onlyEvents() // of both: the request and the start are what has them written
			p.startWith(&s)
			p.begin(p.proxyConfig(&s, nil))
			pods := p.create(s.Pods)
			p.settle(&s, pods, s.Wants(p.version, false))
			p.marked(&s, pods)
			p.remove(pods)
			p.noPodGroups()
			p.end(syscall.SIGTERM)
			p.stop(syscall.SIGTERM)
		})
	}
}

// marked fails unless every container that the plan changes says so.
func (p *viaProxy) marked(s *scenario.Scenario, pods map[string]*kubelet.Running) {
	p.t.Helper()
	plan := s.Applied(p.version)
	for _, pod := range s.Pods {
		namespace := pod.Namespace
		if namespace == "" {
			namespace = "default"
		}
		for _, c := range pod.Containers {
			want := plan[namespace+"/"+pod.Name+"/"+c.Name]
			m := p.mark(pods[pod.Name].Containers[c.Name])
			if _, held := want[orderKnob]; len(want) == 0 && m != nil || len(want) > 0 && m == nil && !(held && len(want) == 1) && !p.unmarked(pod.FullName()) {
				p.t.Errorf("%s/%s: planned %v, mark %+v", pod.Name, c.Name, want, m)
			}
		}
	}
}

var besideLives = []proxyLife{
	{"Resize", besideResize},
	{"PluginKilled", besidePluginKilled},
	{"ProxyKilled", besideProxyKilled},
	{"PluginStuck", besidePluginStuck},
	{"Required", besideRequired},
	{"Koordctl", besideKoordctl},
}

// TestHostProxyBeside lives through the deaths of either program.
func TestHostProxyBeside(t *testing.T) { proxyLives(t, rigOptions{}, besideLives) }

// TestGuestProxyBeside does so in a VM.
func TestGuestProxyBeside(t *testing.T) { proxyLives(t, rigOptions{}, besideLives) }

// upBoth starts the plugin and then the proxy, with CPU normalisation of ratio 1.2 and further configuration of both.
func (p *viaProxy) upBoth(more map[string]any) {
	p.t.Helper()
	p.normalise(1, 120)
	p.up(standard, more)
	p.upProxy(standard, more)
	p.eventually(5*time.Second, func() error {
		if p.proxyMetric("koord_rt_cri_connected") != 1 {
			return fmt.Errorf("the proxy is not connected")
		}
		return nil
	})
}

// quotaOf is the line of wants for a container's quota.
func quotaOf(n int) []string {
	if cgroupV2() {
		return []string{fmt.Sprintf("main cpu.max=%d 100000", n)}
	}
	return []string{fmt.Sprintf("main cpu.cfs_quota_us=%d", n)}
}

func (p *viaProxy) resize(run *kubelet.Running, cpu kubelet.Quantity) {
	p.t.Helper()
	if err := p.resizeMain(run, limited(cpu, "128Mi")); err != nil {
		p.t.Fatalf("resize to %s: %v", cpu, err)
	}
}

// besideResize: a resize goes through both and is scaled once, and what the kubelet asked is remembered by both.
func besideResize(p *viaProxy) {
	p.upBoth(onlyEvents()) // resizes, starts and the ratio are what has it written
	ls := p.pod(lsPod("both-ls"))
	p.now(ls, quotaOf(41667))
	m := p.mark(ls.Containers["main"])
	if m == nil && !p.unmarked(ls.Pod.FullName()) || m != nil && m.Base["cpu.quota"] != "50000" {
		p.t.Errorf("mark %+v, want the kubelet's quota as the base", m)
	}
	for cpu, want := range map[kubelet.Quantity]int{"1500m": 125000, "300m": 25000, "1": 83334} {
		p.resize(ls, cpu)
		p.now(ls, quotaOf(want))
	}
	p.resize(ls, "600m")
	p.now(ls, quotaOf(50000))
	// The CPU manager's update states no quota.
	err := p.client.UpdateContainer(p.t.Context(), ls.Containers["main"], &runtimeapi.LinuxContainerResources{CpusetCpus: allCPUs()})
	if err != nil {
		p.t.Fatal(err)
	}
	p.now(ls, quotaOf(50000))
	// Whoever is killed reads the other's words too.
	p.stop(syscall.SIGKILL)
	p.crash()
	p.rig.again()
	p.again()
	p.normalise(2, 150)
	p.soon(5*time.Second, ls, quotaOf(40000))
	p.normalise(3, 100)
	p.soon(5*time.Second, ls, quotaOf(60000))
}

// besidePluginKilled: the proxy takes the direct writes over within moments, and gives them back.
func besidePluginKilled(p *viaProxy) {
	_, rest := cpus()
	p.upBoth(nil) // somebody else's write, below, is for the check for drift
	p.normalise(2, 100)
	lsr, ls := p.pod(lsrPod("alone-lsr")), p.pod(lsPod("alone-ls"))
	p.soon(5*time.Second, ls, wants("LS", rest))
	rounds := 3
	if emulated() {
		rounds = 1 // 20 s each
	}
	for i := range rounds {
		p.stop(syscall.SIGKILL)
		burst := map[bool]string{false: "cpu.cfs_burst_us", true: "cpu.max.burst"}[p.tree.V2()]
		if err := cgroups.Write(p.kube.ContainerDir(ls, "main", "cpu"), burst, "0"); err != nil {
			p.t.Fatal(err)
		}
		p.soon(30*time.Second, ls, wants("LS", rest)) // at the latest by the check for drift
		for _, pod := range []kubelet.Pod{bePod(fmt.Sprint("alone-be", i)), lsPod(fmt.Sprint("alone-more-ls", i))} {
			p.soon(2*time.Second, p.pod(pod), wants(kindOf(pod.Name), rest))
		}
		p.resize(ls, "1")
		p.soon(5*time.Second, ls, quotaOf(100000))
		p.rig.again()
		p.soon(2*time.Second, p.pod(bePod(fmt.Sprint("again-be", i))), wants("BE", rest))
		p.resize(ls, "500m")
		p.soon(5*time.Second, ls, wants("LS", rest))
		p.now(lsr, wants("LSR", ""))
	}
}

// besideProxyKilled: the kubelet is pointed at the runtime and the plugin goes on by itself; then the proxy is there again.
func besideProxyKilled(p *viaProxy) {
	_, rest := cpus()
	p.upBoth(onlyEvents()) // requests and the ratio are what the one that lives follows
	ls := p.pod(lsPod("killed-ls"))
	lsr := p.pod(lsrPod("killed-lsr"))
	p.crash()
	p.kube.Through(p.host.CRI())
	p.resize(ls, "1500m")
	p.now(ls, quotaOf(125000))
	p.normalise(2, 100)
	p.soon(5*time.Second, ls, quotaOf(150000))
	p.now(p.pod(bePod("killed-be")), wants("BE", rest))
	p.again()
	p.kube.Through(p.client)
	p.now(ls, quotaOf(150000))
	p.resize(ls, "300m")
	p.now(ls, quotaOf(30000))
	p.normalise(3, 120)
	p.soon(5*time.Second, ls, quotaOf(25000))
	p.now(lsr, wants("LSR", ""))
	writers := p.writers()
	if writers["nri"] == 0 || writers["cri"] == 0 {
		p.t.Errorf("the ledger's records by writer: %v", writers)
	}
}

// writers counts the lines of each writer's ledger.
func (p *viaProxy) writers() map[string]int {
	p.t.Helper()
	files, err := filepath.Glob(filepath.Join(p.run, "ledger", "*.jsonl"))
	if err != nil {
		p.t.Fatal(err)
	}
	out := map[string]int{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			p.t.Fatal(err)
		}
		out[strings.TrimSuffix(filepath.Base(f), ".jsonl")] = strings.Count(string(text), "\n")
	}
	return out
}

// besidePluginStuck: a plugin that hangs is dropped by the runtime; the proxy does not wait for it for ever.
func besidePluginStuck(p *viaProxy) {
	p.upBoth(nil)
	p.normalise(2, 100)
	if err := p.plugin.Process.Signal(syscall.SIGSTOP); err != nil {
		p.t.Fatal(err)
	}
	be := p.pod(bePod("stuck-be"))
	p.soon(runtimeLimit, be, wants("BE", ""))
	if err := p.plugin.Process.Signal(syscall.SIGCONT); err != nil {
		p.t.Fatal(err)
	}
	p.soon(5*time.Second, p.pod(bePod("unstuck-be")), wants("BE", ""))
}

// besideRequired: what only the plugin can do before the first instruction may be demanded while it is there.
func besideRequired(p *viaProxy) {
	p.upBoth(nil)
	pod := bePod("needs-identity")
	pod.Annotations = mergeMaps(pod.Annotations, map[string]string{protocol.AnnotationRequired: "cpu-identity,batch"})
	run := p.demanding(pod)
	p.now(run, []string{"main @sched=5", "main @oom=900"})
	p.now(run, quotaOf(41667))
}

// besideKoordctl asks the questions of a person with both programs there.
func besideKoordctl(p *viaProxy) {
	_, rest := cpus()
	p.upBoth(nil)
	p.normalise(2, 100)
	ls, be := p.pod(lsPod("ctl-ls")), p.pod(bePod("ctl-be"))
	p.pod(lsrPod("ctl-lsr"))
	p.soon(5*time.Second, ls, wants("LS", rest))
	p.now(be, wants("BE", rest))
	p.answers([]string{"features"}, "koord-nri", "koord-runtime-proxy", "after start: a CRI request to containerd")
	p.answers([]string{"explain", "default/ctl-be"}, "cpu.quota", "batch", "sched.policy", "cpu-identity", "class BE")
	p.answers([]string{"diff", "--exit-code"}, "0 of ")
	out, err := p.ctl("doctor", "--containerd-config", p.host.Config, "--nri-socket", p.host.NRISocket)
	if err != nil {
		p.t.Errorf("doctor with both programs: %v\n%s", err, out)
	}
}
