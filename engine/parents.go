// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"strconv"
	"sync"

	"github.com/koord-rt/koord-rt/kernel/root"
)

// parents holds the quotas of pods open on cgroup v1, where a container's may not exceed its pod's. To look the files up
// takes the kernel many times as long as to read them, and may wait for memory or a lock; reading what is open does not.
// The zero value is ready.
type parents struct {
	mu sync.Mutex
	of map[string]*parent // by the directory of the cpu controller
}

type parent struct{ quota, period root.Held }

// hold opens the quota and the period of a directory, unless they are open or cannot be. It does so outside of the lock, which
// CreateContainer takes on the request's own goroutine.
func (p *parents) hold(dir string) {
	if p.has(dir) {
		return
	}
	files := openParent(dir)
	if files == nil {
		return
	}
	p.mu.Lock()
	if p.of[dir] == nil {
		if p.of == nil {
			p.of = map[string]*parent{}
		}
		p.of[dir], files = files, nil
	}
	p.mu.Unlock()
	files.close()
}

// openParent opens and reads both files, nil when that fails: the first read of a file makes room for its content.
func openParent(dir string) *parent {
	quota, err := root.Hold(dir, "cpu.cfs_quota_us")
	if err != nil {
		return nil
	}
	period, err := root.Hold(dir, "cpu.cfs_period_us")
	if err != nil {
		quota.Close()
		return nil
	}
	files := &parent{quota, period}
	if _, _, ok := files.read(); !ok {
		files.close()
		return nil
	}
	return files
}

func (f *parent) read() (quota, period int64, ok bool) {
	quota, ok1 := heldInt(&f.quota)
	period, ok2 := heldInt(&f.period)
	return quota, period, ok1 && ok2
}

func (f *parent) close() {
	if f != nil {
		f.quota.Close()
		f.period.Close()
	}
}

// has reports whether the files of a directory are open.
func (p *parents) has(dir string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[dir] != nil
}

// get reads the files of a directory, which the kernel answers from memory. Those of a cgroup that was removed are closed; ok is
// then false.
func (p *parents) get(dir string) (quota, period int64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	files := p.of[dir]
	if files == nil {
		return 0, 0, false
	}
	if quota, period, ok = files.read(); !ok {
		delete(p.of, dir)
		files.close()
	}
	return quota, period, ok
}

func heldInt(h *root.Held) (int64, bool) {
	b := root.Get()
	defer b.Put()
	raw, err := h.Read(b)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, err == nil
}

// drop closes the files of a directory. Whoever has read them has done so under the lock.
func (p *parents) drop(dir string) {
	p.mu.Lock()
	files := p.of[dir]
	delete(p.of, dir)
	p.mu.Unlock()
	files.close()
}
