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

// hold opens the quota and the period of a directory, unless they are open or cannot be.
func (p *parents) hold(dir string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of[dir] != nil {
		return
	}
	quota, err := root.Hold(dir, "cpu.cfs_quota_us")
	if err != nil {
		return
	}
	period, err := root.Hold(dir, "cpu.cfs_period_us")
	if err != nil {
		quota.Close()
		return
	}
	if p.of == nil {
		p.of = map[string]*parent{}
	}
	p.of[dir] = &parent{quota, period}
	p.read(dir) // the first read of a file makes room for its content
}

// has reports whether the files of a directory are open.
func (p *parents) has(dir string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[dir] != nil
}

// get reads the files of a directory. Those of a cgroup that was removed are closed; ok is then false.
func (p *parents) get(dir string) (quota, period int64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.read(dir)
}

func (p *parents) read(dir string) (quota, period int64, ok bool) {
	files := p.of[dir]
	if files == nil {
		return 0, 0, false
	}
	quota, ok1 := heldInt(&files.quota)
	period, ok2 := heldInt(&files.period)
	if !ok1 || !ok2 {
		p.close(dir)
	}
	return quota, period, ok1 && ok2
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

// drop closes the files of a directory.
func (p *parents) drop(dir string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.close(dir)
}

func (p *parents) close(dir string) {
	if files := p.of[dir]; files != nil {
		files.quota.Close()
		files.period.Close()
		delete(p.of, dir)
	}
}
