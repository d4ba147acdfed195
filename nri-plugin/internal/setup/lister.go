// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/workload"
)

// lister asks the runtime that koord-nri is connected to: at the configured endpoint, else at that runtime's usual one. It is
// safe for concurrent use.
type lister struct {
	// endpoint is the configured one, "" for none; name is the runtime's, "" while none has connected.
	endpoint string
	name     func() string

	mu  sync.Mutex
	at  string
	now *cri.Lister
}

// Container implements engine.Lister.
func (l *lister) Container(ctx context.Context, id string, marks ...*protocol.Applied) (*workload.Pod, *workload.Container, error) {
	c, at, err := l.open()
	if err != nil {
		return nil, nil, err
	}
	pod, container, err := c.Container(ctx, id, marks...)
	if err != nil {
		err = fmt.Errorf("%s: %w", at, err)
	}
	return pod, container, err
}

// Reach implements engine.Reacher.
func (l *lister) Reach(ctx context.Context) error {
	c, at, err := l.open()
	if err != nil {
		return err
	}
	if _, err := c.Version(ctx); err != nil {
		return fmt.Errorf("%s (host.criEndpoint): %w", at, err)
	}
	return nil
}

// open is the client of the present runtime's endpoint.
func (l *lister) open() (c *cri.Lister, at string, err error) {
	at = l.endpoint
	if at == "" {
		name := l.name()
		if at = cri.Endpoint(strings.ToLower(name)); at == "" {
			return nil, "", fmt.Errorf("no host.criEndpoint is configured, and the runtime %q has none that is known", name)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now != nil && l.at == at {
		return l.now, at, nil
	}
	if c, err = cri.NewLister(at); err != nil {
		return nil, "", err
	}
	if l.now != nil {
		_ = l.now.Close() // of a runtime that has gone
	}
	l.now, l.at = c, at
	return c, at, nil
}

func (l *lister) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == nil {
		return nil
	}
	return l.now.Close()
}
