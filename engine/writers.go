// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"sync"
	"time"
)

// writers are those who are about to write a container's values by a plan that they have read. Each of them enters first, and looks then
// whether the container is still what the plan was decided for. So who has changed it has only to wait for those who are at it before he
// writes himself: no older value comes to stand over his. Over CRI the runtime's client hears of a start before its values are written, and
// may ask for a smaller quota at once, which the kernel refuses below a burst that comes back.
type writers struct {
	mu sync.Mutex
	at map[string]writing // by container
}

type writing struct {
	n    int
	done chan struct{} // closed when nobody is at it; nil while nobody waits
}

func (w *writers) enter(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.at == nil {
		w.at = map[string]writing{}
	}
	now := w.at[id]
	now.n++
	w.at[id] = now
}

func (w *writers) leave(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.at[id]
	if now.n--; now.n > 0 {
		w.at[id] = now
		return
	}
	if now.done != nil {
		close(now.done)
	}
	delete(w.at, id)
}

// quiet returns when nobody is at a container, at the latest at until.
func (w *writers) quiet(ctx context.Context, id string, until time.Time) {
	w.mu.Lock()
	now, busy := w.at[id]
	if busy && now.done == nil {
		now.done = make(chan struct{})
		w.at[id] = now
	}
	w.mu.Unlock()
	if busy {
		awaited(ctx, now.done, until)
	}
}
