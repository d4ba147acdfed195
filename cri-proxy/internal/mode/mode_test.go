// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package mode_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/ask"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/doubt"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/mode"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

type edge struct{}

func (edge) Mark(*node.View, plan.Plan, *workload.Container) *protocol.Applied { return nil }

// Marks name the proxy and the View.
func TestBy(t *testing.T) {
	t.Parallel()
	want := mark.By{Generation: 7, Program: "koord-runtime-proxy", Version: "1.2"}
	if got := mode.By(&node.View{Generation: 7}, "1.2"); got != want {
		t.Errorf("%+v", got)
	}
}

// The parts know the runtime's containers once it has said hello and given its list, and not before.
func TestConnect(t *testing.T) {
	t.Parallel()
	cfg := config.DefaultProxy()
	cfg.Reconnect.Min, cfg.Reconnect.Max = config.Duration(time.Millisecond), config.Duration(2*time.Millisecond)
	machine := enginetest.New(t, "6.12")
	g := engine.New(machine.Options(t, cfg.Node, edge{}, "{}"))
	enginetest.Run(t, g)
	var hellos, lists atomic.Int32
	m := mode.New(mode.Options{Config: cfg, Version: "1", Log: slog.New(slog.DiscardHandler), Engine: g}, mode.Runtime{
		Hello: func(context.Context) error {
			if hellos.Add(1) < 3 {
				return errors.New("not up yet")
			}
			return nil
		},
		List:   func(_ context.Context, first bool) (bool, error) { lists.Add(1); return false, nil },
		Ping:   func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		Stated: func(context.Context, string) (ask.Stated, error) { return ask.Stated{}, nil },
		Record: func(context.Context, string) (doubt.Read, error) { return nil, nil },
	})
	select {
	case <-m.Synced():
		t.Fatal("synced before it was connected")
	default:
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); m.Connect(ctx) }()
	<-m.Synced()
	if hellos.Load() != 3 || lists.Load() == 0 || m.Servers == nil || m.Updates == nil {
		t.Errorf("%d hellos, %d lists, %v, %v", hellos.Load(), lists.Load(), m.Servers, m.Updates)
	}
	cancel()
	<-done
}
