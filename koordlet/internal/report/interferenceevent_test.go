// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package report

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods/podstest"
	"github.com/koord-rt/koord-rt/policy/interference"
)

// records keeps what was recorded; err is what it answers.
type records struct {
	err error
	got []kube.Event
}

func (r *records) Record(_ context.Context, instance string, e kube.Event) error {
	if instance != "node-1" {
		return fmt.Errorf("from %q", instance)
	}
	if r.err == nil {
		r.got = append(r.got, e)
	}
	return r.err
}

// TestHerald: the owners of who suffers and of who makes others suffer are told, each thing once in ten minutes; of who is unknown to the API server
// nothing is said, and one that is away keeps nobody waiting.
func TestHerald(t *testing.T) {
	t.Parallel()
	snapshot := podstest.Snapshot(t, `{"metadata": {"name": "web", "namespace": "shop", "uid": "u-web"}}`, `{"metadata": {"name": "batch", "namespace": "lab", "uid": "u-batch"}}`)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		api := &records{}
		h := NewHerald(api, "node-1", func() *pods.Snapshot { return snapshot }, slog.New(slog.DiscardHandler))
		go h.Run(ctx)
		said := func(kind interference.EventKind, uids ...string) (out []string) {
			t.Helper()
			api.got = nil
			var list []interference.Event
			for _, uid := range uids {
				list = append(list, interference.Event{Pod: uid, Name: uid, Kind: kind, Text: "why " + uid})
			}
			h.Tell(list, time.Now())
			synctest.Wait()
			for _, e := range api.got {
				out = append(out, fmt.Sprintf("%s/%s %s %t %s %s", e.Regarding.Namespace, e.Regarding.Name, e.Regarding.UID, e.Warning, e.Reason, e.Note))
			}
			return out
		}
		want := func(got []string, lines ...string) {
			t.Helper()
			if !slices.Equal(got, lines) {
				t.Errorf("said %q, want %q", got, lines)
			}
		}
		want(said(interference.Disturbed, "u-web", "nobody"), "shop/web u-web true Disturbed why u-web")
		want(said(interference.Disturbed, "u-web"))
		want(said(interference.Suspected, "u-batch"), "lab/batch u-batch false SuspectedOfDisturbing why u-batch")
		want(said(interference.Convicted, "u-batch"), "lab/batch u-batch true Disturbing why u-batch")
		time.Sleep(sayAgain)
		want(said(interference.Disturbed, "u-web"), "shop/web u-web true Disturbed why u-web")
		if len(h.said) != 1 {
			t.Errorf("kept of what was said ten minutes ago: %v", h.said)
		}
		api.err = errors.New("away")
		want(said(interference.Undisturbed, "u-web"))
		api.err = nil
		want(said(interference.Released, "u-batch"), "lab/batch u-batch false Released why u-batch")
	})
}

// TestHeraldIsNeverWaitedFor: without anybody who sends, as many wait as there is room for, and the others are dropped.
func TestHeraldIsNeverWaitedFor(t *testing.T) {
	t.Parallel()
	var objects []string
	var list []interference.Event
	for i := range waiting + 5 {
		uid := fmt.Sprint("u-", i)
		objects = append(objects, `{"metadata": {"name": "p`+uid+`", "namespace": "lab", "uid": "`+uid+`"}}`)
		list = append(list, interference.Event{Pod: uid, Text: strings.Repeat("x", 10)})
	}
	snapshot := podstest.Snapshot(t, objects...)
	h := NewHerald(&records{}, "node-1", func() *pods.Snapshot { return snapshot }, slog.New(slog.DiscardHandler))
	h.Tell(list, time.Now())
	if len(h.queue) != waiting || len(h.said) != waiting {
		t.Errorf("%d wait, %d are said", len(h.queue), len(h.said))
	}
}

// TestEveryKindHasItsWord: no two kinds have one word, and none is without.
func TestEveryKindHasItsWord(t *testing.T) {
	t.Parallel()
	words := map[string]bool{}
	for k := interference.Disturbed; k <= interference.Released; k++ {
		reason, _ := reasonOf(k)
		if reason == "" || words[reason] || strings.HasPrefix(reason, "Interference") {
			t.Errorf("kind %d: %q", k, reason)
		}
		words[reason] = true
	}
}
