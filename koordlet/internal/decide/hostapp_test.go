// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
)

func withApps(f *decide.Facts) {
	f.View.Strategy.HostApplications = []strategy.HostApplication{
		{Name: "nginx", QoS: "LS", CgroupPath: &strategy.CgroupPath{Base: strategy.BaseKubepodsBurstable, RelativePath: "nginx"}},
		{Name: "spark", QoS: "BE"},
		{Name: "spark", QoS: "BE", CgroupPath: &strategy.CgroupPath{RelativePath: "twice"}},
	}
	f.View.Kernel.Knobs[plan.CPUSetCPUs].OK = true
}

// The reference's worked example: 32 CPUs, 65 %, LS pods 8, a host application 1, system 2: 20.8 − 8 − 1 − 2 = 9.8.
func TestHostApplicationsCount(t *testing.T) {
	t.Parallel()
	f, w := facts(strategy.SuppressCFSQuota)
	withApps(f)
	at := f.Now - unit.Second/2
	measure(w, at, 14, 8, 3)
	w.Append([]sample.Sample{{Subject: sample.OfHostApp("nginx"), Metric: sample.CPUUsage, Value: 1, At: at}})
	_, out := decide.Step(decide.State{}, f)
	if out.Suppress.System != 2000 || out.Suppress.Allowance.V != 9800 {
		t.Errorf("system %d, allowance %d: %s", out.Suppress.System, out.Suppress.Allowance.V, out.Suppress.Reason)
	}
	w.Append([]sample.Sample{{Subject: sample.OfHostApp("spark"), Metric: sample.CPUUsage, Value: 1, At: at}})
	if _, out = decide.Step(decide.State{}, f); out.Suppress.System != 1000 || out.Suppress.Allowance.V != 10800 {
		t.Errorf("with a BE application: system %d, allowance %d: %s", out.Suppress.System, out.Suppress.Allowance.V, out.Suppress.Reason)
	}
}

// The set of BE applications is that of this step; it is taken back once when it ends, and left alone then.
func TestHostApplicationsAreHeld(t *testing.T) {
	t.Parallel()
	f, w := facts(strategy.SuppressCPUSet)
	withApps(f)
	measure(w, f.Now-unit.Second/2, 14, 8, 3)
	s, out := decide.Step(decide.State{}, f)
	values := func(p plan.Plan) map[string]string {
		got := map[string]string{}
		for i := range p {
			got[p[i].Target.Cgroup+" "+p[i].Knob.String()] = p[i].Value.String()
		}
		return got
	}
	want := map[string]string{"/host-best-effort/spark cpuset.cpus": out.Dynamic.BECPUs.String()}
	if diff := cmp.Diff(want, values(out.Apps)); diff != "" || !out.Owns {
		t.Errorf("owns %v: %s", out.Owns, diff)
	}
	f.Now += unit.Second
	measure(w, f.Now-unit.Second/2, 14, 8, 3)
	if s, out = decide.Step(s, f); out.Owns || len(out.Apps) != 1 {
		t.Errorf("again: owns %v, %v", out.Owns, out.Apps)
	}
	f.View.Strategy.ResourceUsedThresholdWithBE.Enable = new(false)
	s, out = decide.Step(s, f)
	// What stood there before is the ledger's to say: this is for where it does not.
	if diff := cmp.Diff(map[string]string{"/host-best-effort/spark cpuset.cpus": "0-31"}, values(out.Back)); diff != "" || !out.Owns || len(out.Apps) > 0 {
		t.Errorf("after the end: owns %v, %v: %s", out.Owns, out.Apps, diff)
	}
	if _, out = decide.Step(s, f); out.Owns || len(out.Apps)+len(out.Back) != 0 {
		t.Errorf("later: owns %v, %v, %v", out.Owns, out.Apps, out.Back)
	}
}

// An LS application leaves the CPUs that an LSE pod has, and gets back what it had when that pod ends.
func TestAppsLeaveCPUsOfLSE(t *testing.T) {
	t.Parallel()
	f, _ := facts(strategy.SuppressCFSQuota)
	withApps(f)
	f.View.Claims.LSE = topo.Range(0, 3)
	s, out := decide.Step(decide.State{}, f)
	const dir = "/kubepods/burstable/nginx"
	if p := out.Apps; len(p) != 1 || p[0].Target.Cgroup != dir || p[0].Knob != plan.CPUSetCPUs || p[0].Value != plan.Text("4-31") || !out.Owns {
		t.Errorf("beside LSE: %v, owns %v", out.Apps, out.Owns)
	}
	f.View.Claims.LSE = topo.CPUSet{}
	if _, out = decide.Step(s, f); len(out.Apps) != 0 || len(out.Back) != 1 || out.Back[0].Target.Cgroup != dir || out.Back[0].Value != plan.Text("0-31") || !out.Owns {
		t.Errorf("after it: %v, back %v", out.Apps, out.Back)
	}
}

// An application in another's cgroup would be counted twice, and one around the kubelet's would be all pods: they are named and left alone.
func TestAppsThatAreRefused(t *testing.T) {
	t.Parallel()
	at := func(name, path string) strategy.HostApplication {
		return strategy.HostApplication{Name: name, QoS: "BE", CgroupPath: &strategy.CgroupPath{RelativePath: path}}
	}
	f, _ := facts(strategy.SuppressCPUSet)
	f.View.Strategy.HostApplications = []strategy.HostApplication{
		at("a", "host/a"), at("within", "host/a/b"), at("around", "host"), at("same", "host/a"), at("pods", "kubepods"), at("apart", "host/ab"),
	}
	_, out := decide.Step(decide.State{}, f)
	want := []string{
		`hostApplications: "within": its cgroup /host/a/b is not apart from /host/a of "a"`,
		`hostApplications: "around": its cgroup /host is not apart from /host/a of "a"`,
		`hostApplications: "same": its cgroup /host/a is not apart from /host/a of "a"`,
		`hostApplications: "pods": its cgroup /kubepods holds the kubelet's /kubepods`,
	}
	if diff := cmp.Diff(want, out.AppProblems); diff != "" {
		t.Error(diff)
	}
	apps, _ := decide.Apps(f.View, f.Members)
	if len(apps) != 2 || apps[0].Name != "a" || apps[1].Name != "apart" {
		t.Errorf("%+v", apps)
	}
}

// Where the kubelet's directories are shows in any pod's.
func TestApps(t *testing.T) {
	t.Parallel()
	f, _ := facts(strategy.SuppressCPUSet)
	withApps(f)
	for name, tc := range map[string]struct {
		pod  string
		want []string
	}{
		"no pod":   {"", []string{"/host-best-effort/spark"}},
		"cgroupfs": {"/kubepods/besteffort/podbe", []string{"/kubepods/burstable/nginx", "/host-best-effort/spark"}},
		"systemd": {
			"/a.slice/a-kubepods.slice/a-kubepods-podb_e.slice",
			[]string{"/a.slice/a-kubepods.slice/a-kubepods-burstable.slice/nginx", "/host-best-effort/spark"},
		},
	} {
		m := f.Members[0]
		p := *m.Pod
		p.Cgroup, m.Pod = tc.pod, &p
		var got []string
		apps, problems := decide.Apps(f.View, append(f.Members[1:2:2], m))
		if len(problems) != 1 || problems[0] != `hostApplications: "spark": the name is another's` {
			t.Errorf("%s: problems %q", name, problems)
		}
		for _, app := range apps {
			got = append(got, app.Cgroup)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
