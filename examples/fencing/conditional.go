package fencing

import (
	"context"
	"database/sql"
)

// AccountsTable keeps with each row the fencing token of its last writer.
const AccountsTable = `CREATE TABLE accounts (
	id      TEXT PRIMARY KEY,
	balance BIGINT NOT NULL,
	fence   BIGINT NOT NULL DEFAULT 0
)`

// SetBalance writes the balance unless a later holder has written. One
// statement compares and writes, so nothing can come in between. It returns
// ErrStale if it was refused, or if there is no such account.
func SetBalance(ctx context.Context, db *sql.DB, account string, balance, fence int64) error {
	result, err := db.ExecContext(ctx,
		`UPDATE accounts SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2`, balance, fence, account)
	if err != nil {
		return err
	}
	switch n, err := result.RowsAffected(); {
	case err != nil:
		return err
	case n == 0:
		return ErrStale
	}
	return nil
}
