// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package container_test

import (
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/policy/container"
	pt "github.com/koord-rt/koord-rt/policy/policytest"
)

func cpus(t *testing.T, list string) topo.CPUSet {
	t.Helper()
	s, err := topo.ParseCPUSet(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestClaim(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		class     protocol.QoS
		set       string
		claims    node.Claims
		own       node.PodClaim
		percent   int
		exclusive string
		lse, lsr  string
		problems  []string
	}{
		"LSE":                         {class: protocol.QoSLSE, set: "0-3", lse: "0-3"},
		"LSR":                         {class: protocol.QoSLSR, set: "0-3", lsr: "0-3"},
		"no label counts as LSR":      {class: protocol.QoSNone, set: "2", lsr: "2"},
		"LS claims nothing":           {class: protocol.QoSLS, set: "0-3"},
		"BE claims nothing":           {class: protocol.QoSBE, set: "0-3"},
		"no cpuset":                   {class: protocol.QoSLSE},
		"offline CPUs are dropped":    {class: protocol.QoSLSE, set: "6-9", lse: "6-7", problems: []string{"CPUs 8-9 are not online"}},
		"nothing online":              {class: protocol.QoSLSE, set: "100-200", problems: []string{"not online", "no CPU is left"}},
		"reserved":                    {class: protocol.QoSLSR, set: "0-3", claims: node.Claims{Reserved: cpus(t, "0-1")}, lsr: "2-3", problems: []string{"CPUs 0-1 are reserved"}},
		"another LSE pod's":           {class: protocol.QoSLSR, set: "0-3", claims: node.Claims{LSE: cpus(t, "3-4")}, lsr: "0-2", problems: []string{"CPUs 3 are claimed by another LSE pod"}},
		"LSR may overlap LSR":         {class: protocol.QoSLSR, set: "0-3", claims: node.Claims{LSR: cpus(t, "3-4")}, lsr: "0-3"},
		"LSE may not overlap LSR":     {class: protocol.QoSLSE, set: "0-3", claims: node.Claims{LSR: cpus(t, "3-4")}, lse: "0-2", problems: []string{"claimed by an LSR pod"}},
		"its own claim is no problem": {class: protocol.QoSLSE, set: "0-3", claims: node.Claims{LSE: cpus(t, "0-3")}, own: node.PodClaim{LSE: cpus(t, "0-3")}, lse: "0-3"},
		"exclusive SYSTEM":            {class: protocol.QoSLSE, set: "0-3", exclusive: "0", lse: "1-3", problems: []string{"exclusive to SYSTEM"}},
		"above the node's share":      {class: protocol.QoSLSE, set: "0-3", percent: 25, problems: []string{"above its limit of 2"}},
		"above it with others":        {class: protocol.QoSLSE, set: "0-3", percent: 50, claims: node.Claims{LSR: cpus(t, "6")}, problems: []string{"lifts the node to 5"}},
		"not a list":                  {class: protocol.QoSLSE, set: "0-99999999999", problems: []string{"not a CPU list"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, p := pt.View(), pt.Pod(tc.class)
			v.Claims = tc.claims
			v.Claims.ByPod = map[string]node.PodClaim{p.UID: tc.own}
			if tc.percent > 0 {
				v.Limits.ExclusivePercent = 25
				if tc.percent == 50 {
					v.Limits.ExclusivePercent = 50
				}
			}
			v.Dynamic.SystemQoS, v.Dynamic.SystemQoSExclusive = cpus(t, tc.exclusive), tc.exclusive != ""
			p.Ask.ResourceStatus = &protocol.ResourceStatus{CPUSet: tc.set}
			lse, lsr, problems := container.Claim(v, p, pt.Container(p))
			if lse.String() != tc.lse || lsr.String() != tc.lsr {
				t.Errorf("claims LSE %q LSR %q, want %q %q", lse, lsr, tc.lse, tc.lsr)
			}
			if len(problems) != len(tc.problems) {
				t.Fatalf("problems %v, want %q", problems, tc.problems)
			}
			for i, w := range tc.problems {
				if problems[i].Key != protocol.AnnotationResourceStatus || !strings.Contains(problems[i].Reason, w) {
					t.Errorf("problem %v, want %q", problems[i], w)
				}
			}
			v.Modes[protocol.FeatureCPUSet] = node.Observe
			if lse, lsr, _ := container.Claim(v, p, pt.Container(p)); !lse.Empty() || !lsr.Empty() {
				t.Error("an observed feature claims CPUs")
			}
		})
	}
}

func TestCPUSet(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		class   protocol.QoS
		kube    protocol.KubeQoS
		set     string
		nodes   []int
		claims  node.Claims
		dynamic node.Dynamic
		kernel  func(*node.Kernel)
		base    string
		want    want
		why     string
	}{
		"LSE":                                 {class: protocol.QoSLSE, set: "4-5", want: want{"cpuset.cpus": "4-5", "cpuset.mems": "1", "cpu.quota": "-1"}},
		"LSR on both nodes":                   {class: protocol.QoSLSR, set: "3-4", want: want{"cpuset.cpus": "3-4", "cpuset.mems": "0-1", "cpu.quota": "-1"}},
		"static memory manager":               {class: protocol.QoSLSR, set: "4-5", kernel: func(k *node.Kernel) { k.KubeletStaticMemory = true }, want: want{"cpuset.cpus": "4-5", "cpuset.mems": "-", "cpu.quota": "-1"}},
		"static CPU manager":                  {class: protocol.QoSLSR, set: "4-5", base: "0-1", kernel: func(k *node.Kernel) { k.KubeletStaticCPU = true }, want: want{"cpuset.cpus": "4-5"}},
		"LS left to the kubelet":              {class: protocol.QoSLS, base: "0-1", claims: node.Claims{LSE: cpus(t, "7")}, kernel: func(k *node.Kernel) { k.KubeletStaticCPU = true }, want: want{"cpuset.cpus": "-"}},
		"LS alone":                            {class: protocol.QoSLS, want: want{"cpuset.cpus": "-", "cpuset.mems": "-"}},
		"LS with a set of its own":            {class: protocol.QoSLS, base: "0-1", want: want{"cpuset.cpus": "0-7"}},
		"LS beside claims":                    {class: protocol.QoSLS, claims: node.Claims{LSE: cpus(t, "0-1"), LSR: cpus(t, "2"), Reserved: cpus(t, "7")}, want: want{"cpuset.cpus": "3-6"}, why: "no pod owns"},
		"Guaranteed without label":            {class: protocol.QoSNone, kube: protocol.KubeGuaranteed, claims: node.Claims{LSR: cpus(t, "0-1")}, want: want{"cpuset.cpus": "2-7"}},
		"exclusive SYSTEM CPUs":               {class: protocol.QoSLS, dynamic: node.Dynamic{SystemQoS: cpus(t, "0"), SystemQoSExclusive: true}, want: want{"cpuset.cpus": "1-7"}},
		"share pools":                         {class: protocol.QoSLS, dynamic: node.Dynamic{Known: true, SharePools: []node.Pool{{Node: 0, CPUs: cpus(t, "1-3")}, {Node: 1, CPUs: cpus(t, "4-6")}}}, want: want{"cpuset.cpus": "1-6"}, why: "share pools"},
		"share pools older than a claim":      {class: protocol.QoSLS, claims: node.Claims{LSE: cpus(t, "2-3")}, dynamic: node.Dynamic{Known: true, SharePools: []node.Pool{{Node: 0, CPUs: cpus(t, "1-3")}}}, want: want{"cpuset.cpus": "1"}},
		"NUMA share pool":                     {class: protocol.QoSLS, nodes: []int{1}, dynamic: node.Dynamic{Known: true, SharePools: []node.Pool{{Node: 0, CPUs: cpus(t, "1-3")}, {Node: 1, CPUs: cpus(t, "4-6")}}}, want: want{"cpuset.cpus": "4-6"}, why: "NUMA"},
		"NUMA without an agent":               {class: protocol.QoSLS, nodes: []int{1}, claims: node.Claims{LSR: cpus(t, "4")}, want: want{"cpuset.cpus": "5-7"}},
		"NUMA pool empty":                     {class: protocol.QoSLS, nodes: []int{1}, claims: node.Claims{LSR: cpus(t, "4-7")}, want: want{"cpuset.cpus": "0-3"}},
		"LS: nothing free":                    {class: protocol.QoSLS, claims: node.Claims{LSE: cpus(t, "0-3"), LSR: cpus(t, "4-7")}, want: want{"cpuset.cpus": "4-7"}, why: "shares LSR CPUs"},
		"LS: LSE owns all":                    {class: protocol.QoSLS, base: "1", claims: node.Claims{LSE: cpus(t, "0-7")}, want: want{"cpuset.cpus": "0-7"}, why: "LSE pods own every CPU"},
		"SYSTEM":                              {class: protocol.QoSSystem, dynamic: node.Dynamic{SystemQoS: cpus(t, "0-1,99")}, want: want{"cpuset.cpus": "0-1"}},
		"SYSTEM without set":                  {class: protocol.QoSSystem, claims: node.Claims{LSE: cpus(t, "0-1")}, want: want{"cpuset.cpus": "-"}},
		"BE suppressed":                       {class: protocol.QoSBE, dynamic: node.Dynamic{Known: true, BECPUs: cpus(t, "2-5")}, want: want{"cpuset.cpus": "2-5"}, why: "suppression"},
		"BE not on LSR":                       {class: protocol.QoSBE, claims: node.Claims{LSE: cpus(t, "2"), LSR: cpus(t, "3")}, dynamic: node.Dynamic{Known: true, BECPUs: cpus(t, "2-5")}, want: want{"cpuset.cpus": "4-5"}},
		"BE shares LSR":                       {class: protocol.QoSBE, claims: node.Claims{LSE: cpus(t, "2"), LSR: cpus(t, "3")}, dynamic: node.Dynamic{Known: true, BESharesLSR: true, BECPUs: cpus(t, "2-5")}, want: want{"cpuset.cpus": "3-5"}},
		"BE without suppression":              {class: protocol.QoSBE, claims: node.Claims{LSE: cpus(t, "0-1"), LSR: cpus(t, "2"), Reserved: cpus(t, "7")}, want: want{"cpuset.cpus": "3-6"}},
		"BE beside what the agent keeps":      {class: protocol.QoSBE, claims: node.Claims{LSR: cpus(t, "2")}, dynamic: node.Dynamic{Known: true, BESharePools: []node.Pool{{Node: 0, CPUs: cpus(t, "0-3")}, {Node: 1, CPUs: cpus(t, "4-5")}}}, want: want{"cpuset.cpus": "0-1,3-5"}},
		"BE: only LSR CPUs left":              {class: protocol.QoSBE, claims: node.Claims{LSE: cpus(t, "2"), LSR: cpus(t, "3")}, dynamic: node.Dynamic{Known: true, BECPUs: cpus(t, "2-3")}, want: want{"cpuset.cpus": "3"}, why: "only CPUs of LSR pods"},
		"BE: set all LSE":                     {class: protocol.QoSBE, claims: node.Claims{LSE: cpus(t, "2-3")}, dynamic: node.Dynamic{Known: true, BECPUs: cpus(t, "2-3")}, want: want{"cpuset.cpus": "0-1,4-7"}, why: "no CPU is left for BE"},
		"BE NUMA pool":                        {class: protocol.QoSBE, nodes: []int{0}, dynamic: node.Dynamic{Known: true, BECPUs: cpus(t, "2-5"), BESharePools: []node.Pool{{Node: 0, CPUs: cpus(t, "0-3")}}}, want: want{"cpuset.cpus": "2-3"}},
		"BestEffort without label":            {class: protocol.QoSNone, kube: protocol.KubeBestEffort, dynamic: node.Dynamic{Known: true, BECPUs: cpus(t, "2-5")}, want: want{"cpuset.cpus": "2-5"}},
		"LSR over its share runs in the pool": {class: protocol.QoSLSR, set: "0-7", claims: node.Claims{LSE: cpus(t, "0")}, want: want{"cpuset.cpus": "1-7", "cpu.quota": "-"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, p := pt.View(), pt.Pod(tc.class)
			v.Claims, v.Dynamic = tc.claims, tc.dynamic
			if tc.kernel != nil {
				tc.kernel(&v.Kernel)
			}
			if tc.kube != protocol.KubeUnknown {
				p.KubeQoS = tc.kube
			}
			if tc.set != "" || tc.nodes != nil {
				p.Ask.ResourceStatus = &protocol.ResourceStatus{CPUSet: tc.set, NUMANodes: tc.nodes}
			}
			c := pt.Container(p)
			c.Base.CPUs = tc.base
			pl, _ := container.Decide(v, p, c)
			pt.Want(t, pl, tc.want, false)
			set, _, why, ok := container.CPUSet(v, p, c)
			if w := tc.want["cpuset.cpus"]; w != "-" && (!ok || set.String() != w || !strings.Contains(why, tc.why)) {
				t.Errorf("CPUSet %q %q %v, want %q %q", set, why, ok, w, tc.why)
			}
			if ok && set.Empty() {
				t.Error("CPUSet gives an empty set")
			}
		})
	}
}

func TestCPUSetOnlyWhereItWrites(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*node.View){
		"off":         func(v *node.View) { v.Modes[protocol.FeatureCPUSet] = node.Off },
		"observe":     func(v *node.View) { v.Modes[protocol.FeatureCPUSet] = node.Observe },
		"namespace":   func(v *node.View) { v.OptOutNamespaces = []string{"default"} },
		"no topology": func(v *node.View) { v.Topology = nil },
	} {
		v, p := pt.View(), pt.Pod(protocol.QoSLS)
		v.Claims.LSE = cpus(t, "0-1")
		if set, _, _, ok := container.CPUSet(v, p, pt.Container(p)); !ok || set.String() != "2-7" {
			t.Fatalf("%s: before the change %q %v", name, set, ok)
		}
		change(v)
		if set, _, _, ok := container.CPUSet(v, p, pt.Container(p)); ok {
			t.Errorf("%s: still moves to %q", name, set)
		}
	}
}
