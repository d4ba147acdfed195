// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kube

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/koord-rt/koord-rt/koordlet/internal/trust"
)

// way is where the API server is and who we are there, immutable.
type way struct {
	base string
	http *trust.Client
}

func newWay(server string, o trust.Options) (*way, error) {
	u, err := url.Parse(server)
	switch { // none of them shows the text, which may have a password in it
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return nil, errors.New("the API server's address is none: want https://host")
	case u.User != nil:
		return nil, fmt.Errorf("API server %s: a user in the address is not used: give a token or a client certificate", u.Redacted())
	}
	o.Proxy, o.Compressed = true, true
	h, err := trust.New(o)
	if err != nil {
		return nil, fmt.Errorf("API server %s: %w", u.Redacted(), err)
	}
	return &way{base: strings.TrimSuffix(server, "/"), http: h}, nil
}

// fileWay is the way that a kubeconfig says. While a node bootstraps its kubeconfig comes seconds or minutes after its agents.
type fileWay struct {
	path, userAgent string
	told            func(error)

	mu sync.Mutex
	// last is the newest that could be read, stamp the file's when it was; nil before.
	last  *way
	stamp trust.Stamp
	// err is why the file could not be read at the newest try, since when.
	err   error
	since time.Time
}

func newFileWay(c Config) *fileWay {
	if c.Read == nil {
		c.Read = func(error) {}
	}
	return &fileWay{path: c.Kubeconfig, userAgent: c.Trust.UserAgent, told: c.Read}
}

// now reads the file unless it is the one that was read. A file that became unreadable or wrong leaves in force what it said before, as
// those that a client reads of keys and tokens do. A watch that stands is not cut off for a new one, it ends in its time.
func (f *fileWay) now() (*way, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	stamp := trust.StampOf(f.path)
	if f.last != nil && f.err == nil && stamp == f.stamp {
		return f.last, nil
	}
	fresh, err := f.read()
	if err == nil || !sameText(err, f.err) {
		f.since = time.Now()
		f.told(err)
	}
	if f.err = err; err == nil {
		if f.last != nil {
			f.last.http.Close()
		}
		f.last, f.stamp = fresh, stamp
	}
	if f.last == nil {
		return nil, err
	}
	return f.last, nil
}

func (f *fileWay) read() (*way, error) {
	c, err := FromKubeconfig(f.path)
	if err != nil {
		return nil, err
	}
	c.Trust.UserAgent = f.userAgent
	w, err := newWay(c.Server, c.Trust)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", f.path, err)
	}
	return w, nil
}

// unread is why the file could not be read at the newest try and since when, and the newest way that it told, nil for none.
func (f *fileWay) unread() (last *way, since time.Time, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last, f.since, f.err
}

func (f *fileWay) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last != nil {
		f.last.http.Close()
	}
}
