// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package draft

import (
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

// BlkIO plans the block IO settings that belong to the draft's level, and reports what cannot be resolved.
//
// Both sources, the class' blocks (where enabled) and the annotation's, hold for each pod; the annotation wins per
// device, but a BE pod's only lowers its class' limits and weight (D13, Limits.BeyondClass). Upstream writes class values to the BE directory; that directory is the kubelet's, so here each BE pod gets
// them. On cgroup v2 limits stand on the pod and bind its containers together. The throttle of cgroup v1 does not look
// at ancestors (block/blk-throttle.c without sane_behavior), so there every container carries the pod's limits; weight
// and latency stand on the pod in both versions.
//
// A limit of 0 is unlimited, the kernel's default, and not planned. ioWeightPercent is the weight itself: 100 is the
// kernel's default of both, 50 half of it. The latency target is the smaller one of readLatency and writeLatency,
// because io.latency has one per device; an annotation's is not below Limits.IOLatencyMin: a target that no disk can meet
// slows everybody else on it down (block/blk-iolatency.c).
func (d *Draft) BlkIO() {
	if !d.Plans(protocol.FeatureBlkIO) {
		return
	}
	asked := d.Pod.Ask.BlkIO
	if len(asked) > 0 && !d.View.Limits.BlkIO {
		if d.Target.Level == plan.LevelPod {
			d.Problem(protocol.AnnotationBlkIOQOS, "block IO by annotation is switched off in the node's limits (limits.blkIO)")
		}
		asked = nil
	}
	class := d.Pod.Class()
	var given []strategy.Block
	if class != protocol.QoSNone {
		if q := d.View.Strategy.ClassFor(class.String()).BlkIOQOS; On(q.Enable) {
			given = q.Blocks
		}
	}
	for i := range asked {
		b, why := asked[i], "annotation blkioQOS"
		if unused := b.IOCfg.Unused(); len(unused) > 0 && d.Target.Level == plan.LevelPod {
			d.Problem(protocol.AnnotationBlkIOQOS, strings.Join(unused, ", ")+" of "+Clip(b.Name)+" set nothing: they are the disk's, under cgroupRoot.blkioQOS")
		}
		if most := d.names(given, b.Name); most != nil && class == protocol.QoSBE && !d.View.Limits.BeyondClass && lower(&b.IOCfg, &most.IOCfg) {
			why += ", held within class BE's (limits.beyondClass)"
		}
		d.block(&b, why, d.View.Limits.IOLatencyMin)
	}
	for i := range given {
		if d.names(asked, given[i].Name) == nil {
			d.block(&given[i], classWhy(class), 0)
		}
	}
	d.diskLimit()
}

// names is the block of a disk, by this name or another one that the disk has.
func (d *Draft) names(blocks []strategy.Block, name string) *strategy.Block {
	device, known := d.View.Kernel.Disks[name]
	for i := range blocks {
		if other := blocks[i].Name; other == name || known && d.View.Kernel.Disks[other] == device {
			return &blocks[i]
		}
	}
	return nil
}

// lower holds limits and weight within others and says whether that changed any. 0 and nothing are unlimited.
func lower(c, most *strategy.IOCfg) (held bool) {
	for _, pair := range [...][2]**int64{
		{&c.ReadBPS, &most.ReadBPS}, {&c.WriteBPS, &most.WriteBPS}, {&c.ReadIOPS, &most.ReadIOPS}, {&c.WriteIOPS, &most.WriteIOPS},
		{&c.IOWeightPercent, &most.IOWeightPercent},
	} {
		own, limit := Num(*pair[0]), Num(*pair[1])
		if limit > 0 && (own <= 0 || own > limit) {
			*pair[0], held = *pair[1], true
		}
	}
	return held
}

// block plans one block; its latency target is least at least.
func (d *Draft) block(b *strategy.Block, why string, least int64) {
	if b.Type != strategy.BlockDevice {
		if d.Target.Level == plan.LevelPod {
			d.Problem(protocol.AnnotationBlkIOQOS, Clip(b.Type)+" "+Clip(b.Name)+" is not resolved here: name its disk as a block of type device")
		}
		return
	}
	device, ok := d.View.Kernel.Disks[b.Name]
	if !ok {
		if d.Target.Level == plan.LevelPod {
			d.Problem(protocol.AnnotationBlkIOQOS, "this node has no block device "+Clip(b.Name))
		}
		return
	}
	onContainers := d.View.Kernel.Cgroup == node.CgroupV1
	if onContainers == (d.Target.Level == plan.LevelContainer) {
		d.limit(plan.IOReadBPS, device, b.IOCfg.ReadBPS, why)
		d.limit(plan.IOWriteBPS, device, b.IOCfg.WriteBPS, why)
		d.limit(plan.IOReadIOPS, device, b.IOCfg.ReadIOPS, why)
		d.limit(plan.IOWriteIOPS, device, b.IOCfg.WriteIOPS, why)
	}
	if d.Target.Level != plan.LevelPod {
		return
	}
	if w := Num(b.IOCfg.IOWeightPercent); w > 0 {
		d.SetKey(protocol.FeatureBlkIO, plan.IOWeight, device, plan.Int(min(w, 100)), why)
	}
	if t := latency(&b.IOCfg); t > 0 {
		if t < least {
			t, why = least, why+", capped by the node's ioLatencyMin"
		}
		d.SetKey(protocol.FeatureBlkIO, plan.IOLatency, device, plan.Int(t), why)
	}
}

func (d *Draft) limit(k plan.Knob, device string, n *int64, why string) {
	if Num(n) > 0 {
		d.SetKey(protocol.FeatureBlkIO, k, device, plan.Int(*n), why)
	}
}

func latency(c *strategy.IOCfg) int64 {
	r, w := Num(c.ReadLatency), Num(c.WriteLatency)
	if r <= 0 || w > 0 && w < r {
		return w
	}
	return r
}

// Clip quotes and shortens text that comes from a pod, for a message.
func Clip(s string) string {
	if len(s) > 32 {
		return strconv.QuoteToASCII(s[:32]) + "..."
	}
	return strconv.QuoteToASCII(s)
}
