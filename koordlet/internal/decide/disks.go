// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide

import (
	"slices"

	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
	"github.com/koord-rt/koord-rt/policy/interference"
)

// diskPart is the least part of a cap that each of reading and writing gets: who only reads shall still be able to write.
const diskPart = 10

// DiskUse is a pod that is held at the disks: what it may read and write, as its use was divided when it was told to.
type DiskUse struct {
	Pod   string             `json:"pod"`
	Told  interference.Level `json:"told"`
	Read  unit.Bytes         `json:"read"`
	Write unit.Bytes         `json:"write"`
}

// diskUses divides the caps of the suspects into reading and writing, anew whenever a cap changes.
//
// Example: told 100 MiB/s, it reads 150 MiB/s and writes 50: 75 and 25. Told 75 MiB/s, it only reads: 75 and 7.5.
func (f *Facts) diskUses(s *State) (out []DiskUse) {
	for _, suspect := range s.Interference.Suspects {
		if suspect.Resource != interference.Disk {
			continue
		}
		if i := slices.IndexFunc(s.Disks, func(d DiskUse) bool { return d.Pod == suspect.Pod && d.Told == suspect.Limit }); i >= 0 {
			out = append(out, s.Disks[i])
			continue
		}
		pod := sample.OfPod(suspect.Pod)
		r, w := f.slowly(pod, sample.DiskReadBytes), f.slowly(pod, sample.DiskWriteBytes)
		part := 0.5
		if sum := r.Last + w.Last; r.Known() && w.Known() && sum > 0 {
			part = r.Last / sum
		}
		limit := float64(suspect.Limit)
		out = append(out, DiskUse{
			Pod: suspect.Pod, Told: suspect.Limit,
			Read: unit.Bytes(limit * max(part, 1.0/diskPart)), Write: unit.Bytes(limit * max(1-part, 1.0/diskPart)),
		})
	}
	return out
}

// diskLimits are for the handoff.
func diskLimits(list []DiskUse) map[string]node.DiskLimit {
	if len(list) == 0 {
		return nil
	}
	out := make(map[string]node.DiskLimit, len(list))
	for _, d := range list {
		if d.Read > 0 && d.Write > 0 {
			out[d.Pod] = node.DiskLimit{Read: d.Read, Write: d.Write, Reason: "it disturbs others at the disks: it is held to " + figure.Bytes(unit.Bytes(d.Told)) + "/s"}
		}
	}
	return out
}
