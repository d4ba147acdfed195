// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kube

import (
	"errors"
	"io"
	"testing"
	"time"
)

// TestBackAfterSilence: a server is back right after an attempt that was not answered, says no once, ends a watch at once, and takes the
// next one: within ten seconds, however long it was away. One that answers now and then is not asked more than once a second for ever.
func TestBackAfterSilence(t *testing.T) {
	t.Parallel()
	for range 200 {
		f := &follower{retry: backoff{min: DefaultMinRetry, max: DefaultMaxRetry}}
		wait := func(err error) time.Duration {
			f.heard(err)
			return f.retry.next(err)
		}
		refused, denied := io.ErrUnexpectedEOF, &Error{Code: 403}
		for range 50 {
			wait(refused)
		}
		if took := wait(refused) + wait(denied) + wait(errEarly); took > 10*time.Second {
			t.Errorf("back after %s", took)
		}
		for range 50 {
			if pause := wait(errors.New("nobody answers")) + wait(denied); pause < 2*time.Second {
				t.Errorf("two attempts in %s", pause)
			}
		}
	}
}
