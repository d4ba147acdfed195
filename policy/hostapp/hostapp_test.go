// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package hostapp_test

import (
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/policy/hostapp"
	pt "github.com/koord-rt/koord-rt/policy/policytest"
)

func systemd() hostapp.Roots {
	return hostapp.Roots{
		Kubepods: "/kubepods.slice", Burstable: "/kubepods.slice/kubepods-burstable.slice", BestEffort: "/kubepods.slice/kubepods-besteffort.slice",
	}
}

func TestCgroup(t *testing.T) {
	t.Parallel()
	app := func(qos string, p *strategy.CgroupPath) *strategy.HostApplication {
		return &strategy.HostApplication{Name: "nginx", QoS: qos, CgroupPath: p}
	}
	for name, tc := range map[string]struct {
		app  *strategy.HostApplication
		want string
		ok   bool
	}{
		"LS":              {app("LS", nil), "/host-latency-sensitive/nginx", true},
		"no class":        {app("", nil), "/host-latency-sensitive/nginx", true},
		"BE":              {app("BE", nil), "/host-best-effort/nginx", true},
		"root":            {app("LS", &strategy.CgroupPath{Base: "CgroupRoot", ParentDir: "host", RelativePath: "nginx/"}), "/host/nginx", true},
		"no base":         {app("LS", &strategy.CgroupPath{RelativePath: "system.slice/nginx.service"}), "/system.slice/nginx.service", true},
		"kubepods":        {app("LS", &strategy.CgroupPath{Base: "Kubepods", RelativePath: "nginx"}), "/kubepods.slice/nginx", true},
		"burstable":       {app("LS", &strategy.CgroupPath{Base: "KubepodsBurstable", ParentDir: "/a", RelativePath: "/b"}), "/kubepods.slice/kubepods-burstable.slice/a/b", true},
		"best effort":     {app("BE", &strategy.CgroupPath{Base: "KubepodsBesteffort", RelativePath: "b"}), "/kubepods.slice/kubepods-besteffort.slice/b", true},
		"climbs":          {app("BE", &strategy.CgroupPath{Base: "KubepodsBesteffort", ParentDir: "../..", RelativePath: "../../x"}), "/kubepods.slice/kubepods-besteffort.slice/x", true},
		"the root itself": {app("BE", &strategy.CgroupPath{Base: "CgroupRoot", RelativePath: ".."}), "", false},
		"kubelet's own":   {app("BE", &strategy.CgroupPath{RelativePath: "kubepods.slice"}), "", false},
		"another base":    {app("BE", &strategy.CgroupPath{Base: "Elsewhere", RelativePath: "x"}), "", false},
		"no name":         {&strategy.HostApplication{QoS: "BE"}, "", false},
		"a name of dots":  {&strategy.HostApplication{Name: ".."}, "", false},
	} {
		dir, ok := hostapp.Cgroup(tc.app, systemd())
		if ok != tc.ok || ok && dir != tc.want {
			t.Errorf("%s: %q %v, want %q %v", name, dir, ok, tc.want, tc.ok)
		}
	}
	if dir, ok := hostapp.Cgroup(app("LS", &strategy.CgroupPath{Base: "Kubepods", RelativePath: "x"}), hostapp.Roots{}); ok {
		t.Errorf("without the kubelet's directories: %q", dir)
	}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	const dir = "/host-best-effort/batch"
	for name, tc := range map[string]struct {
		qos, dir string
		change   func(*node.View)
		want     string
	}{
		"BE on mainline":     {qos: "BE", dir: dir, want: "cpu.idle = 1 cpuset.cpus = 2-3"},
		"BE on a vendor's":   {qos: "BE", dir: dir, change: func(v *node.View) { pt.Vendor(v) }, want: "cpu.bvt = -1 cpuset.cpus = 2-3"},
		"BE in a unit":       {qos: "BE", dir: "/system.slice/batch.service", want: "cpuset.cpus = 2-3"},
		"BE, not suppressed": {qos: "BE", dir: dir, change: func(v *node.View) { v.Dynamic.BECPUs = topo.CPUSet{} }, want: "cpu.idle = 1"},
		"BE, agent away":     {qos: "BE", dir: dir, change: func(v *node.View) { v.Dynamic.Known = false }, want: "cpu.idle = 1"},
		"BE, CPUs offline":   {qos: "BE", dir: dir, change: func(v *node.View) { v.Dynamic.BECPUs = topo.Range(100, 101) }, want: "cpu.idle = 1"},
		"LS on mainline":     {qos: "LS", dir: dir},
		"LS on a vendor's":   {qos: "LS", dir: dir, change: func(v *node.View) { pt.Vendor(v) }, want: "cpu.bvt = 2"},
		"no class":           {dir: dir},
		"unknown class":      {qos: "XX", dir: dir},
		"class not enabled":  {qos: "BE", dir: dir, change: func(v *node.View) { pt.YAML(t, v, "") }, want: "cpuset.cpus = 2-3"},
		"features switched off": {qos: "BE", dir: dir, change: func(v *node.View) {
			v.Modes[protocol.FeatureIdentity], v.Modes[protocol.FeatureCPUSet] = node.Off, node.Off
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := pt.YAML(t, pt.View(), pt.Everything)
			v.Dynamic.Known, v.Dynamic.BECPUs = true, topo.Range(2, 3)
			if tc.change != nil {
				tc.change(v)
			}
			var got []string
			for _, s := range hostapp.Decide(v, &strategy.HostApplication{Name: "batch", QoS: tc.qos}, tc.dir) {
				got = append(got, s.Knob.String()+" = "+s.Value.String())
				if s.Target.Cgroup != tc.dir || s.Target.Level != plan.LevelQoS || s.Reason == "" {
					t.Errorf("%s", &s)
				}
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("%q, want %q", strings.Join(got, " "), tc.want)
			}
		})
	}
}
