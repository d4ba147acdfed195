// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package hostapp_test

import (
	"errors"
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
		app       *strategy.HostApplication
		want, why string
	}{
		"LS":              {app("LS", nil), "/host-latency-sensitive/nginx", ""},
		"no class":        {app("", nil), "/host-latency-sensitive/nginx", ""},
		"BE":              {app("BE", nil), "/host-best-effort/nginx", ""},
		"root":            {app("LS", &strategy.CgroupPath{Base: "CgroupRoot", ParentDir: "host", RelativePath: "nginx/"}), "/host/nginx", ""},
		"no base":         {app("LS", &strategy.CgroupPath{RelativePath: "system.slice/nginx.service"}), "/system.slice/nginx.service", ""},
		"kubepods":        {app("LS", &strategy.CgroupPath{Base: "Kubepods", RelativePath: "nginx"}), "/kubepods.slice/nginx", ""},
		"burstable":       {app("LS", &strategy.CgroupPath{Base: "KubepodsBurstable", ParentDir: "/a", RelativePath: "/b"}), "/kubepods.slice/kubepods-burstable.slice/a/b", ""},
		"best effort":     {app("BE", &strategy.CgroupPath{Base: "KubepodsBesteffort", RelativePath: "b"}), "/kubepods.slice/kubepods-besteffort.slice/b", ""},
		"climbs":          {app("BE", &strategy.CgroupPath{Base: "KubepodsBesteffort", ParentDir: "../..", RelativePath: "../../x"}), "/kubepods.slice/kubepods-besteffort.slice/x", ""},
		"the root itself": {app("BE", &strategy.CgroupPath{Base: "CgroupRoot", RelativePath: ".."}), "", "the root"},
		"kubelet's own":   {app("BE", &strategy.CgroupPath{RelativePath: "kubepods.slice"}), "", "holds the kubelet's"},
		"another base":    {app("BE", &strategy.CgroupPath{Base: "Elsewhere", RelativePath: "x"}), "", "Elsewhere"},
		"no name":         {&strategy.HostApplication{QoS: "BE"}, "", "no name"},
		"a name of dots":  {&strategy.HostApplication{Name: ".."}, "", "no name"},
		"a dot":           {&strategy.HostApplication{Name: ".", QoS: "BE"}, "", "no name"},
	} {
		dir, err := hostapp.Cgroup(tc.app, systemd())
		if (err == nil) != (tc.why == "") || dir != tc.want || err != nil && !strings.Contains(err.Error(), tc.why) {
			t.Errorf("%s: %q %v, want %q %q", name, dir, err, tc.want, tc.why)
		}
	}
	below := hostapp.Roots{Kubepods: "/node/kubepods", Burstable: "/node/kubepods/burstable", BestEffort: "/node/kubepods/besteffort"}
	for path, why := range map[string]string{
		"node": "/node holds the kubelet's /node/kubepods", "node/kubepods": "holds", "node/kubepods/besteffort": "holds", "kubepods": "holds",
		"nod": "", "node/k": "", "node/kubepods/x": "", "node/kubepods/burstable/podu": "belongs to a pod", "node/kubepods/podu/c1": "belongs to a pod",
	} {
		dir, err := hostapp.Cgroup(app("BE", &strategy.CgroupPath{RelativePath: path}), below)
		if (err == nil) != (why == "") || err != nil && !strings.Contains(err.Error(), why) {
			t.Errorf("%s beside pods in %s: %q %v, want %q", path, below.Kubepods, dir, err, why)
		}
	}
	if dir, err := hostapp.Cgroup(app("LS", &strategy.CgroupPath{Base: "Kubepods", RelativePath: "x"}), hostapp.Roots{}); !errors.Is(err, hostapp.ErrUnknown) {
		t.Errorf("without the kubelet's directories: %q %v", dir, err)
	}
	if dir, err := hostapp.Cgroup(app("BE", &strategy.CgroupPath{RelativePath: "kubepods.slice"}), hostapp.Roots{}); err == nil {
		t.Errorf("before any pod: %q", dir)
	}
}

func TestWithin(t *testing.T) {
	t.Parallel()
	for pair, want := range map[[2]string]bool{{"/a", "/a"}: true, {"/a/b", "/a"}: true, {"/ab", "/a"}: false, {"/a", "/a/b"}: false} {
		if got := hostapp.Within(pair[0], pair[1]); got != want {
			t.Errorf("%s within %s: %v", pair[0], pair[1], got)
		}
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
		"LS beside LSE": {qos: "LS", dir: dir, change: func(v *node.View) {
			v.Dynamic.SharePools = []node.Pool{{CPUs: topo.Range(2, 3)}, {Node: 1, CPUs: topo.Range(5, 100)}}
		}, want: "cpuset.cpus = 2-3,5-7"},
		"LS, every CPU is shared": {qos: "LS", dir: dir, change: func(v *node.View) { v.Dynamic.SharePools = []node.Pool{{CPUs: v.Topology.All()}} }},
		"LS, agent away": {qos: "LS", dir: dir, change: func(v *node.View) {
			v.Dynamic.Known, v.Dynamic.SharePools = false, []node.Pool{{CPUs: topo.Range(2, 3)}}
		}},
		"LSR beside LSE":    {qos: "LSR", dir: dir, change: func(v *node.View) { v.Dynamic.SharePools = []node.Pool{{CPUs: topo.Range(2, 3)}} }},
		"no class":          {dir: dir},
		"unknown class":     {qos: "XX", dir: dir},
		"class not enabled": {qos: "BE", dir: dir, change: func(v *node.View) { pt.YAML(t, v, "") }, want: "cpuset.cpus = 2-3"},
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
