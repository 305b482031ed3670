package fencing

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// ShipmentsTable is a log: each entry has a number of its own. The unique
// constraint is what fences, and the token is kept to tell who wrote what.
const ShipmentsTable = `CREATE TABLE shipments (
	number BIGINT NOT NULL,
	goods  TEXT   NOT NULL,
	fence  BIGINT NOT NULL,
	UNIQUE (number)
)`

// NextShipment returns the number behind the last one, which is what a holder
// reads before it appends.
func NextShipment(ctx context.Context, db *sql.DB) (int64, error) {
	var next int64
	err := db.QueryRowContext(ctx, `SELECT COALESCE(MAX(number), 0) + 1 FROM shipments`).Scan(&next)
	return next, err
}

// AppendShipment writes an entry under the number that was read. A writer who
// lost the lock in between finds the number taken by the next holder: ErrStale.
func AppendShipment(ctx context.Context, db *sql.DB, number int64, goods string, fence int64) error {
	_, err := db.ExecContext(ctx, `INSERT INTO shipments (number, goods, fence) VALUES ($1, $2, $3)`, number, goods, fence)
	if err != nil && strings.Contains(strings.ToLower(err.Error()), "unique") { // in the words of SQLite and of PostgreSQL
		return fmt.Errorf("%w: number %d", ErrStale, number)
	}
	return err
}
