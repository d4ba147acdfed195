// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"fmt"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// objectCase is a request about an object, by a dry run: why a webhook refuses it, or what becomes of it and what the webhook warns of. Inputs are
// such as the definitions take: what a definition refuses shows nothing of the webhook.
type objectCase struct {
	name    string
	text    string // YAML of a new object
	path    string // of one that is there, which is deleted unless it is changed
	change  string // YAML of a merge patch
	by      *cluster.Client
	want    string   // YAML of what the object has at least; null is what it must not have
	refused []string // parts of the refusal
	warned  []string // a part of each warning; there are no others
}

// ask makes the request.
func (c *objectCase) ask(ctx context.Context, by *cluster.Client) (cluster.Object, error) {
	const query = "?dryRun=All&fieldValidation=Strict"
	if c.text == "" && c.change == "" {
		return nil, by.Delete(ctx, c.path+"?dryRun=All", -1)
	}
	o, err := cluster.ParseObject([]byte(c.text + c.change))
	if err != nil {
		return nil, err
	}
	if c.change != "" {
		return by.Patch(ctx, c.path+query, cluster.MergePatch, o)
	}
	at, err := by.Path(ctx, o)
	if err != nil {
		return nil, err
	}
	return by.Create(ctx, path.Dir(at)+query, o)
}

// judge makes the request of a case and compares; a refusal is one of the webhook of that name.
func (a *admitted) judge(ctx context.Context, webhook string, c *objectCase) error {
	by := c.by
	if by == nil {
		by = a.c.Admin()
	}
	var warned []string
	got, err := c.ask(ctx, by.Hearing(func(w string) { warned = append(warned, w) }))
	refused := c.refused
	if len(refused) > 0 {
		refused = append([]string{`admission webhook "` + webhook + `.koordinator.sh" denied the request: `}, refused...)
	}
	if err := became(got, err, c.want, refused); err != nil {
		return err
	}
	if len(warned) != len(c.warned) {
		return fmt.Errorf("warnings %q, want %q", warned, c.warned)
	}
	for i, part := range c.warned {
		if !strings.HasPrefix(warned[i], "koord-manager: ") || !strings.Contains(warned[i], part) {
			return fmt.Errorf("warning %q, want %q", warned[i], part)
		}
	}
	return nil
}

// judges makes the requests of all cases, at the same time: what is refused of a quota waits for the webhook's cache for half a second.
func (a *admitted) judges(t *testing.T, webhook string, cases []objectCase) {
	t.Helper()
	ctx := t.Context()
	errs := make([]error, len(cases))
	var asked sync.WaitGroup
	for i := range cases {
		asked.Go(func() { errs[i] = a.judge(ctx, webhook, &cases[i]) })
	}
	asked.Wait()
	for i := range cases {
		if errs[i] == nil {
			continue
		}
		t.Logf("%s, at first: %v", cases[i].name, errs[i])
		if err := a.answered(t, func() error { return a.judge(ctx, webhook, &cases[i]) }); err != nil {
			t.Errorf("%s: %v", cases[i].name, err)
		}
	}
}
