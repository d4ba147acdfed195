// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package nodeslo

import (
	"fmt"
	"path"

	"github.com/koord-rt/koord-rt/cluster/internal/ownership"
)

// rules are the API server's over several fields of a NodeSLO: of two percentages one must be below the other. Those of fields with two spellings
// are not among them: of such a field the manager leaves both spellings to who has written one.
func rules() []ownership.Rule {
	const threshold = "/resourceUsedThresholdWithBE/"
	out := []ownership.Rule{
		below(threshold+"memoryEvictLowerPercent", threshold+"memoryEvictThresholdPercent", 70),
		below(threshold+"memoryAllocatableEvictLowerPercent", threshold+"memoryAllocatableEvictThresholdPercent"),
		below(threshold+"cpuEvictBESatisfactionLowerPercent", threshold+"cpuEvictBESatisfactionUpperPercent"),
		below(threshold+"cpuEvictLowerPercent", threshold+"cpuEvictThresholdPercent"),
		below(threshold+"cpuAllocatableEvictLowerPercent", threshold+"cpuAllocatableEvictThresholdPercent"),
	}
	for _, class := range []string{"lsrClass", "lsClass", "beClass", "systemClass", "cgroupRoot"} {
		resctrl := "/resourceQOSStrategy/" + class + "/resctrlQOS/"
		out = append(out, below(resctrl+"catRangeStartPercent", resctrl+"catRangeEndPercent"))
	}
	return out
}

// below is the rule that low is below high, or its default, where it has one. The API server looks at high in the canonical spelling alone, the
// node, which refuses such an object as well, at either: both are to take it.
func below(low, high ownership.Path, byDefault ...int64) ownership.Rule {
	return ownership.Rule{Fields: []ownership.Path{low, high}, Broken: func(have map[ownership.Path]any) string {
		value, is := have[low].(int64)
		if !is {
			return ""
		}
		limits := byDefault
		if v, is := have[high].(int64); is {
			limits = []int64{v}
		} else {
			for seed, name := range spellings {
				if v, is := have[seed].(int64); is && name == high {
					limits = append([]int64{v}, byDefault...)
				}
			}
		}
		for _, limit := range limits {
			if value >= limit {
				return fmt.Sprintf("%s %d is not below %s %d", path.Base(low), value, path.Base(high), limit)
			}
		}
		return ""
	}}
}
