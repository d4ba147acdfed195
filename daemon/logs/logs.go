// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package logs sets up structured logging: handler, level, and a limiter for repeated problems.
//
// Input is configuration; output is an slog.Logger that the caller passes on. Values of environment variables and of
// labels or annotations are never logged, only their names and the reason why one was refused. It imports the standard
// library only.
package logs

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// Options of New.
type Options struct {
	// Level is debug, info, warn or error; empty is info. Format is text or json; empty is text.
	Level, Format string
	// Out is required (os.Stderr in daemons).
	Out io.Writer
}

// New makes a logger.
func New(o Options) (*slog.Logger, error) {
	level, err := parseLevel(o.Level)
	if err != nil {
		return nil, err
	}
	ho := &slog.HandlerOptions{Level: level}
	switch o.Format {
	case "", "text":
		return slog.New(slog.NewTextHandler(o.Out, ho)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(o.Out, ho)), nil
	}
	return nil, fmt.Errorf("set up log: format %q is neither text nor json", o.Format)
}

func parseLevel(s string) (slog.Level, error) {
	switch strings.ToLower(s) {
	case "debug":
		return slog.LevelDebug, nil
	case "", "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, fmt.Errorf("set up log: level %q is none of debug, info, warn, error", s)
}
