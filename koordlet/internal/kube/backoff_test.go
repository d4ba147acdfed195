// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kube

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
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

// quiet is a Sink that hears nothing.
type quiet struct{}

func (quiet) Begin()          {}
func (quiet) Object([]byte)   {}
func (quiet) TooLarge([]byte) {}
func (quiet) Delete([]byte)   {}
func (quiet) End()            {}
func (quiet) State(error)     {}

// lasting tells one event and ends some time later, with a reason or without.
type lasting struct {
	event *strings.Reader
	stood time.Duration
	err   error
}

func (l *lasting) Read(b []byte) (int, error) {
	if l.event.Len() > 0 {
		return l.event.Read(b)
	}
	time.Sleep(l.stood)
	return 0, l.err
}

// TestOneEventIsNoSuccess: a peer that tells one event and ends, cleanly or not, is asked as seldom as one that does not answer; one whose
// watch has stood longer than the longest wait is asked again at once.
func TestOneEventIsNoSuccess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			told        string
			stood       time.Duration
			err         error
			least, most time.Duration // the last waits
		}{
			"cut at once":          {"ADDED", 0, io.ErrUnexpectedEOF, DefaultMaxRetry / 2, DefaultMaxRetry},
			"ended at once":        {"ADDED", 0, io.EOF, DefaultMaxRetry / 2, DefaultMaxRetry},
			"cut within the wait":  {"ADDED", DefaultMaxRetry, io.ErrUnexpectedEOF, DefaultMaxRetry / 2, DefaultMaxRetry},
			"cut after a while":    {"ADDED", 2 * steady, io.ErrUnexpectedEOF, DefaultMinRetry / 2, DefaultMinRetry},
			"an error after none":  {"ERROR", 0, io.EOF, DefaultMaxRetry / 2, DefaultMaxRetry},
			"ended after a minute": {"ADDED", time.Minute, io.EOF, DefaultMinRetry / 2, DefaultMinRetry},
		} {
			f := &follower{sink: quiet{}, retry: backoff{min: DefaultMinRetry, max: DefaultMaxRetry}}
			for i := range 50 {
				err := f.stream(&lasting{strings.NewReader(`{"type":"` + c.told + `","object":{"metadata":{"resourceVersion":"1"}}}`), c.stood, c.err})
				f.heard(err)
				if wait := f.retry.next(err); i > 10 && (wait < c.least || wait > c.most) {
					t.Errorf("%s: waits %s", name, wait)
				}
			}
		}
	})
}
