// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package container_test

import (
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/policy/container"
	pt "github.com/koord-rt/koord-rt/policy/policytest"
)

func TestLLCClass(t *testing.T) {
	t.Parallel()
	own, half := &protocol.Resctrl{LLC: &protocol.Range{Start: 0, End: 50}}, int64(50)
	bandwidth := &protocol.Resctrl{MBPercent: &half}
	for name, tc := range map[string]struct {
		class      protocol.QoS
		kube       protocol.KubeQoS
		ask        *protocol.Resctrl
		base, yaml string
		change     func(*node.View)
		group, mon string
	}{
		"LSE uses LSR's":           {class: protocol.QoSLSE, yaml: pt.Everything, group: "LSR", mon: "uid-1"},
		"LSR":                      {class: protocol.QoSLSR, yaml: pt.Everything, group: "LSR", mon: "uid-1"},
		"LS":                       {class: protocol.QoSLS, yaml: pt.Everything, group: "LS", mon: "uid-1"},
		"BE":                       {class: protocol.QoSBE, yaml: pt.Everything, group: "BE", mon: "uid-1"},
		"SYSTEM":                   {class: protocol.QoSSystem, yaml: pt.Everything, group: "-", mon: "-"},
		"BestEffort without label": {class: protocol.QoSNone, kube: protocol.KubeBestEffort, yaml: pt.Everything, group: "BE", mon: "uid-1"},
		"not enabled":              {class: protocol.QoSBE, group: "-", mon: "-"},
		"pod group":                {class: protocol.QoSBE, ask: own, group: "koordlet-uid-1", mon: "uid-1"},
		"pod groups forbidden":     {class: protocol.QoSBE, ask: own, yaml: pt.Everything, change: func(v *node.View) { v.Limits.PodResctrl = false }, group: "BE", mon: "uid-1"},
		"nothing of it here":       {class: protocol.QoSBE, ask: bandwidth, yaml: pt.Everything, change: func(v *node.View) { v.Kernel.RDT.MB = false }, group: "BE", mon: "uid-1"},
		"a cache that is not here": {class: protocol.QoSLS, ask: &protocol.Resctrl{LLCPerCache: map[int]protocol.Range{9: {Start: 0, End: 30}}}, yaml: pt.Everything, group: "LS", mon: "uid-1"},
		"nothing here, no class":   {class: protocol.QoSBE, ask: bandwidth, change: func(v *node.View) { v.Kernel.RDT.MB = false }, group: "-", mon: "-"},
		"somebody else's class":    {class: protocol.QoSBE, yaml: pt.Everything, base: "gold", group: "-", mon: "-"},
		"not mounted":              {class: protocol.QoSBE, yaml: pt.Everything, change: func(v *node.View) { v.Kernel.RDT.Mounted = false }, group: "-", mon: "-"},
		"counting only":            {class: protocol.QoSBE, yaml: pt.Everything, change: func(v *node.View) { v.Kernel.RDT.L3, v.Kernel.RDT.MB = false, false }, group: "-", mon: "uid-1"},
		"allocation only":          {class: protocol.QoSBE, yaml: pt.Everything, change: func(v *node.View) { v.Kernel.RDT.Mon = false }, group: "BE", mon: "-"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, p := pt.YAML(t, pt.View(), tc.yaml), pt.Pod(tc.class)
			if tc.change != nil {
				tc.change(v)
			}
			if tc.kube != protocol.KubeUnknown {
				p.KubeQoS = tc.kube
			}
			p.Ask.Resctrl = tc.ask
			c := pt.Container(p)
			c.Base.RDT = tc.base
			pl, _ := container.Decide(v, p, c)
			pt.Want(t, pl, want{"rdt.class": tc.group, "rdt.mon_group": tc.mon}, false)
		})
	}
}

// On cgroup v1 the throttle does not look at ancestors, so the container carries the pod's; on v2 the pod does.
func TestBlkIOOnContainers(t *testing.T) {
	t.Parallel()
	n, weight := int64(1048576), int64(50)
	p := pt.Pod(protocol.QoSLS)
	p.Ask.BlkIO = []strategy.Block{
		{Name: "sda", Type: strategy.BlockDevice, IOCfg: strategy.IOCfg{ReadBPS: &n, WriteIOPS: &n, IOWeightPercent: &weight}},
		{Name: "sdz", Type: strategy.BlockDevice},
	}
	v := pt.View()
	pl, problems := container.Decide(v, p, pt.Container(p))
	pt.Want(t, pl, want{}, true)
	v.Kernel.Cgroup = node.CgroupV1
	pl, more := container.Decide(v, p, pt.Container(p))
	pt.Want(t, pl, want{"io.read_bps[8:0]": "1048576", "io.write_iops[8:0]": "1048576"}, true)
	if len(problems)+len(more) > 0 {
		t.Errorf("problems %v %v, want none: the pod level reports them", problems, more)
	}
}
