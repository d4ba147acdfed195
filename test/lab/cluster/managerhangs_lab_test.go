// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// hangs: a koord-manager that takes connections and never answers holds nobody up for longer than its webhooks' timeouts: pods are made as they
// are written, and a node tells of itself. The agent's evictions are refused, and nobody else's wait. When it goes on it admits again.
func (a *admitted) hangs(t *testing.T) {
	ctx := t.Context()
	text := `metadata: {name: hung, labels: {koordinator.sh/priority: "9100"}}
spec: {priorityClassName: koord-batch, containers: [{name: main, image: x, resources: {requests: {koordinator.sh/gpu: 50}, limits: {koordinator.sh/gpu: 50}}}]}
`
	pod, err := cluster.ParseObject([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	create := func(ctx context.Context, query string) (cluster.Object, error) {
		return a.c.Admin().Create(ctx, strings.TrimSuffix(batchPods, "/")+query, pod)
	}
	tell := func(ctx context.Context, cpu, want string) error {
		o, err := a.c.Admin().Patch(ctx, "/api/v1/nodes/a/status", cluster.MergePatch, allocatable(cpu))
		if got := o.Str("status", "allocatable", "cpu"); err == nil && got != want {
			err = fmt.Errorf("allocatable %s, want %s", got, want)
		}
		return err
	}
	webhook, controllers := a.replicas[0].hang(t), a.controllers.hang(t)
	goOn := func() {
		webhook()
		controllers()
	}
	defer goOn()

	// By a connection that is open; then by new ones, which nobody shakes hands on.
	refused(t, "an agent's eviction", func() error { return a.evict(ctx, a.agentA, "db-a", a.uid["db-a"], false) },
		"failed calling webhook", "veviction.koordinator.sh", "deadline exceeded")
	if err := a.evict(ctx, a.c.Admin(), "db-a", "", false); err != nil {
		t.Errorf("an administrator's eviction: %v", err)
	}
	a.front.only(a.replicas[0])
	a.holdsUp(t, "a pod", "pods", "CREATE", func(ctx context.Context) error {
		got, err := create(ctx, "")
		return became(got, err, strings.ReplaceAll(text, ": 50", `: "50", koordinator.sh/gpu-core: null`), nil)
	})
	a.holdsUp(t, "a node's status", "nodes/status", "UPDATE", func(ctx context.Context) error { return tell(ctx, "9", "9") })

	goOn()
	refused(t, "the same pod", func() error {
		_, err := create(ctx, "?dryRun=All")
		return err
	}, "9100", "denied the request")
	passes(t, "an agent's eviction", func() error { return a.evict(ctx, a.agentA, "db-a", a.uid["db-a"], false) })
	passes(t, "an amplified node", func() error { return tell(ctx, "8", "12") })
	if err := a.c.Admin().Delete(ctx, batchPods+"hung", 0); err != nil {
		t.Error(err)
	}
}

// holdsUp fails unless a request passes that waits for webhooks which do not answer, and does so within their timeouts; a machine that does other
// work gets some more.
func (a *admitted) holdsUp(t *testing.T, what, resource, operation string, try func(context.Context) error) {
	t.Helper()
	most := a.patience(t, resource, operation)
	ctx, cancel := context.WithTimeout(t.Context(), most+60*time.Second)
	defer cancel()
	begun := time.Now()
	err := try(ctx)
	took := time.Since(begun)
	if err == nil && took < time.Second { // the shortest timeout there is
		err = errors.New("nobody was asked")
	}
	if err != nil {
		t.Errorf("%s after %s, with webhooks of %s: %v", what, took, most, err)
		return
	}
	t.Logf("%s passes after %s, with webhooks of %s", what, took.Round(time.Millisecond), most)
}

// patience is for how long an API server waits for all webhooks that may be asked about a request together.
func (a *admitted) patience(t *testing.T, resource, operation string) (sum time.Duration) {
	t.Helper()
	for _, path := range []string{mutatingHooks, checkingHooks} {
		o, err := a.c.Admin().Get(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		list, _ := o["webhooks"].([]any)
		for i := range list {
			has := func(rule int, field, value string) bool {
				all, _ := o.At("webhooks", i, "rules", rule, field).([]any)
				return slices.Contains(all, any(value))
			}
			rules, _ := o.At("webhooks", i, "rules").([]any)
			for j := range rules {
				if has(j, "resources", resource) && has(j, "operations", operation) {
					sum += time.Duration(o.Int("webhooks", i, "timeoutSeconds")) * time.Second
				}
			}
		}
	}
	return sum
}
