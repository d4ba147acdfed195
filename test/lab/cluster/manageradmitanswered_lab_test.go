// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"strconv"
	"strings"
	"testing"
)

// answered tries again where the API server counts that it went on without a webhook meanwhile: one that has no CPU for as long as its timeout is
// not waited for any longer, and nothing is known of what it would have said.
func (a *admitted) answered(t *testing.T, try func() error) (err error) {
	t.Helper()
	for range 10 {
		if err = try(); err == nil {
			return nil
		}
		count := a.passedOver(t)
		if count == a.passed {
			return err
		}
		t.Logf("again, since the API server went on without a webhook %v times by now: %v", count, err)
		a.passed = count
	}
	return err
}

// passedOver is how often the API server has gone on without a webhook.
func (m *managed) passedOver(t *testing.T) (count float64) {
	t.Helper()
	text, err := m.c.Admin().Text(t.Context(), "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "apiserver_admission_webhook_fail_open_count{") {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " ")+1:]), 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		count += n
	}
	return count
}
