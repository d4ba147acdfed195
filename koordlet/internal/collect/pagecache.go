// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"github.com/koord-rt/koord-rt/kernel/usage"
	"github.com/koord-rt/koord-rt/model/sample"
)

// pageCaches tells memory with page cache, from what others have read:
//
//	node: MemTotal − MemFree − free lists of the CPUs; cgroup: memory without page cache + active_file + inactive_file
//
// and slowly the page cache itself: Cached, and file of memory.stat (cache on v1).
type pageCaches struct{}

func newPageCache(*machine) (collector, support) { return pageCaches{}, support{} }

func (pageCaches) collect(t *tick) {
	if m := &t.machine; m.memoryOK {
		t.emit(sample.OfNode(), sample.MemoryWithPageCache, float64(m.usedWithPageCache()), m.at)
		t.emit(sample.OfNode(), sample.PageCache, float64(m.memory.Cached), m.at)
	}
	for e := range t.entries() {
		if !e.fresh || !e.counters.Have.Has(usage.MemoryDetail) {
			continue
		}
		t.emit(e.subject, sample.MemoryWithPageCache, float64(e.counters.Memory.WithPageCache()), e.at)
		if t.due(e) {
			t.emit(e.subject, sample.PageCache, float64(e.counters.Memory.Cache), e.at)
		}
	}
}
